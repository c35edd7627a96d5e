package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/distlock/driver"
)

// asksChannel is the channel of the asks of all names. ⚑ Any role can listen, so its messages hide the names.
const asksChannel = "belugalock_asks"

// Ask implements driver.Asker.
func (s *service) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	var owner zeronull.Text // of a grant that was asked
	reply, err := callOnRow(ctx, s, req.Name, func(row pgx.CollectableRow) (reply driver.AskReply, err error) {
		var held bool
		var g shown
		err = row.Scan(&reply.Asked, &reply.Fence, &reply.Own, &owner, &held, &g.fence, &g.waiters, &g.age, &g.remaining, &g.payload)
		if err == nil && held {
			reply.State, err = g.state()
		}
		return reply, err
	}, "ask_v1", req.Fence, req.Work, req.Floor)
	if reply.Asked {
		s.wakes.handoff(handoff{asksChannel, owner})
	}
	return reply, err
}

// NotifyAsks implements driver.Asker.
func (s *service) NotifyAsks(ctx context.Context, _ string, asked func(owner string)) (func(), error) {
	w := s.wakes
	stop, err := w.connected(ctx, func() { w.asks[&asked] = true }, func() { delete(w.asks, &asked) })
	if err == nil && s.held.Pooled() {
		stop()
		err = errors.ErrUnsupported
	}
	return stop, err
}

func (w *wakes) asked(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for asked := range w.asks {
		(*asked)(owner)
	}
}
