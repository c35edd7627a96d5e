package incidents

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

var errApplication = errors.New("the model answered nonsense")

// writes plays the writes that a store refuses, the turns that fail, and each call once.
func (s *stage) writes(ctx context.Context) error {
	i := s.instances[Steady]
	for _, incident := range []struct {
		key  string
		i    *instance
		play func(ctx context.Context, i *instance) error
	}{
		{Stale, s.instances[Paused], s.isStale}, {Conflict, i, s.conflicts}, {Refused, i, s.isRefused},
		{Failed, i, s.fails}, {Calls, i, s.everyCall},
	} {
		err := incident.i.message(ctx, incident.key, func(ctx context.Context, _ trace.TraceID) error {
			return incident.play(ctx, incident.i)
		})
		if err != nil {
			return wrong(incident.key, err)
		}
	}
	return nil
}

// isStale is a turn that is paused until its lock has expired and another turn has written.
func (s *stage) isStale(ctx context.Context, i *instance) error {
	other := s.instances[Steady]
	err := i.memory.Turn(ctx, func(inner context.Context) error {
		if _, err := i.memory.Load(inner, ""); err != nil {
			return err
		}
		err := s.expire(inner, Stale)
		err = errors.Join(err, other.message(ctx, Stale,
			func(ctx context.Context, _ trace.TraceID) error { return other.memory.Save(ctx, "Hello?", "Hello!") }))
		if err != nil {
			return err
		}
		return i.memory.Save(inner, "Where was I?", "Elsewhere.")
	})
	var refused *sessionstore.StaleError
	if !errors.As(err, &refused) {
		return want("Save", err, distlock.ErrLost)
	}
	s.report.StaleWrites++
	return nil
}

// conflicts stores two exchanges under one ID.
func (s *stage) conflicts(ctx context.Context, i *instance) error {
	if err := i.memory.SaveOnce(ctx, "message-7", "Buy one?", "Bought."); err != nil {
		return err
	}
	err := i.memory.SaveOnce(ctx, "message-7", "Sell one?", "Sold.")
	return want("the second SaveOnce", err, sessionstore.ErrIDConflict)
}

// isRefused finds data of another program under the name of its lock.
func (s *stage) isRefused(ctx context.Context, i *instance) error {
	if err := s.admin.Set(ctx, s.lockName(Refused), "data of another program", time.Hour).Err(); err != nil {
		return err
	}
	_, err := i.locker.TryAcquire(ctx, Refused)
	return want("TryAcquire", err, distlock.ErrRefused)
}

// fails is a turn whose function fails.
func (s *stage) fails(ctx context.Context, i *instance) error {
	err := i.memory.Turn(ctx, func(context.Context) error { return errApplication })
	return want("the turn", err, errApplication)
}

// everyCall makes each call that has a span.
func (s *stage) everyCall(ctx context.Context, i *instance) error {
	err := i.memory.Turn(ctx, func(ctx context.Context) error {
		lease, _ := i.locker.FromContext(ctx, Calls)
		first := lockedmemory.Place{Fence: lease.Fence(), N: 1}
		err := errors.Join(
			i.memory.Append(ctx, "q", "tool", "result", "a"),
			i.memory.Replace(ctx, first, first, lockedmemory.Exchange[string]{Messages: []string{"q", "a"}}),
			i.memory.Clear(ctx),
			i.memory.Delete(ctx),
			lease.Extend(ctx, 30*time.Second),
			fencing.RaiseToken(ctx, lease, lease.Fence()+1))
		return err
	})
	_, answered := i.memory.Answer(ctx, "message-8", "q", func(context.Context) ([]string, error) {
		return []string{"a"}, nil
	})
	_, loaded := i.memory.Load(ctx, "")
	return errors.Join(err, answered, loaded)
}
