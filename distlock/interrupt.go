package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// ask is fencing.Ask.
func (l *Locker) ask(ctx context.Context, key string, req driver.AskRequest) (driver.AskReply, error) {
	asker, ok := driver.As[driver.Asker](l.driver)
	if !ok {
		return driver.AskReply{}, fmt.Errorf("distlock: %w: the backend %s asks no holder", errors.ErrUnsupported, l.caps.Backend)
	}
	if !l.enter() {
		return driver.AskReply{}, ErrClosed
	}
	defer l.workEnds()
	if ctx.Err() != nil {
		return driver.AskReply{}, callerLeft("interrupt", ctx)
	}
	asked := time.Now()
	req.Name = driver.Name{Namespace: l.opts.Namespace, Key: key}
	reply, err := callDriver(ctx, min(firstAnswer, l.opts.TTL),
		func(ctx context.Context) (driver.AskReply, error) { return asker.Ask(ctx, req) })
	if err != nil {
		return driver.AskReply{}, failedWrite("interrupt", err)
	}
	if reply.State.Held {
		l.queues.Each(key, func(waiting *acquisition) { waiting.noteAwaited(reply.State.Fence, asked) })
	}
	return reply, nil
}
