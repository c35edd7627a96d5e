package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/distlock/driver"
)

// asksChannel is the channel of the asks of all names. ⚑ Any role can listen, so its messages hide the names.
const asksChannel = "belugalock_asks"

// askMessage is the message of an ask.
func askMessage(name driver.Name) string {
	sum := sha256.Sum256([]byte(name.Namespace + "\x00" + name.Key))
	return hex.EncodeToString(sum[:16])
}

// Ask implements driver.Asker.
func (s *service) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	reply, err := callOnRow(ctx, s, req.Name, func(row pgx.CollectableRow) (reply driver.AskReply, err error) {
		var held bool
		var g shown
		err = row.Scan(&reply.Asked, &reply.Fence, &reply.Own, &held, &g.fence, &g.waiters, &g.age, &g.remaining, &g.payload)
		if err == nil && held {
			reply.State, err = g.state()
		}
		return reply, err
	}, "ask_v1", req.Fence, req.Work, req.Floor)
	if reply.Asked {
		s.wakes.handoff(handoff{asksChannel, zeronull.Text(askMessage(req.Name))})
	}
	return reply, err
}

// NotifyAsks implements driver.Asker.
func (s *service) NotifyAsks(ctx context.Context, _ string, asked func(is func(driver.Name) bool)) (func(), error) {
	w := s.wakes
	stop, err := w.connected(ctx, func() { w.asks[&asked] = true }, func() { delete(w.asks, &asked) })
	if err == nil && s.held.Pooled() {
		stop()
		err = errors.ErrUnsupported
	}
	return stop, err
}

// asked passes on the message of an ask.
func (w *wakes) asked(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for asked := range w.asks {
		(*asked)(func(name driver.Name) bool { return askMessage(name) == message })
	}
}
