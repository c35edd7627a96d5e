package distlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// Interrupt asks the holder, if there is one, to end its work: the work's context ends, and the lease lasts
// on for a TTL at most. It fails with [errors.ErrUnsupported] (redlock), [ErrOutcomeUnknown], or as Inspect.
func (l *Locker) Interrupt(ctx context.Context, key string) (held bool, err error) {
	if err := validKey(key); err != nil {
		return false, err
	}
	reply, err := l.ask(ctx, key, driver.AskRequest{})
	for err == nil && reply.State.Held && !reply.Asked {
		reply, err = l.ask(ctx, key, driver.AskRequest{Fence: reply.Fence})
	}
	return reply.Asked, err
}

// hearAsks has the driver call asked until the Locker is closed. ⚑ A lease may have been asked before that.
func (l *Locker) hearAsks() {
	defer l.workEnds()
	for warned := false; l.closing.Err() == nil; warned = true {
		stop, err := callDriver(l.closing, firstAnswer, func(ctx context.Context) (func(), error) {
			return l.asker.NotifyAsks(ctx, l.opts.Namespace, l.asked)
		})
		retry := time.After(checkEvery)
		if err == nil {
			defer stop()
			retry = nil
			for _, g := range l.held() {
				g.renewNow(false)
			}
		} else if errors.Is(err, errors.ErrUnsupported) {
			return
		} else if !warned && l.closing.Err() == nil {
			l.log(l.closing, slog.LevelWarn, "distlock: the backend cannot notify holders of an Interrupt, so they see it at "+
				"their next renewal; check the right to subscribe and the network", "", "error", err)
		}
		select {
		case <-retry:
		case <-l.closing.Done():
		}
	}
}

// asked ends the work under the grant of an owner, by a notice. ⚑ An owner has one grant, so a late notice
// ends no later work.
func (l *Locker) asked(owner string) {
	l.mu.Lock()
	g := l.grants[owner]
	l.mu.Unlock()
	if g != nil {
		g.renewNow(true)
	}
}

// renewNow has the grant renewed: the answer tells of an ask. A notice ends the work before, and the
// renewal leaves the last step a TTL.
func (g *grant) renewNow(asked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	le := g.holder
	if le.isOver() || le.asked { // ⚑ no renewal follows a release
		return
	}
	g.renewAtLocked(trust.Now())
	le.asked = asked
	le.endAskedLocked()
}

// ask is fencing.Ask.
func (l *Locker) ask(ctx context.Context, key string, req driver.AskRequest) (driver.AskReply, error) {
	unsupported := fmt.Errorf("distlock: %w: the backend %s asks no holder", errors.ErrUnsupported, l.caps.Backend)
	if l.asker == nil {
		return driver.AskReply{}, unsupported
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
		func(ctx context.Context) (driver.AskReply, error) { return l.asker.Ask(ctx, req) })
	switch {
	case errors.Is(err, errors.ErrUnsupported): // the driver wraps one that asks no holder
		return driver.AskReply{}, unsupported
	case errors.Is(err, driver.ErrFloor):
		return driver.AskReply{}, badFloor(req.Floor - 1)
	case err != nil && ctx.Err() != nil && !driver.MayHaveEffect(err):
		return driver.AskReply{}, callerLeft("interrupt", ctx)
	case err != nil:
		return driver.AskReply{}, failedWrite("interrupt", err)
	}
	if reply.State.Held {
		l.queues.Each(key, func(waiting *acquisition) { waiting.noteAwaited(reply.State.Fence, asked) })
	}
	return reply, nil
}
