package incidents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
)

// behind is how many turns wait behind the slow one. The first of them waits at the service, the others
// behind it in their process.
const behind = 5

// contention plays the slow turn. On a slow machine it repeats the turn, with a short hold, until a lock
// was handed off within a process.
func (s *stage) contention(ctx context.Context) error {
	err := s.slowTurn(ctx, s.hold)
	for n := 0; err == nil && !s.watch.handedOff(); n++ {
		if n == 100 {
			return fmt.Errorf("incidents: no local handoff in %d turns", n)
		}
		err = s.slowTurn(ctx, time.Millisecond)
	}
	return wrong("the slow turn", err)
}

// slowTurn plays a turn that holds its session, while turns of another instance queue. The first of
// these gets the lock from the service, the next ones within their process.
func (s *stage) slowTurn(base context.Context, hold time.Duration) error {
	steady, waiting := s.instances[Steady], s.instances[Waiting]
	var wg sync.WaitGroup
	failures := make(chan error, behind)
	err := steady.message(base, Slow, func(ctx context.Context, id trace.TraceID) error {
		return steady.memory.Turn(ctx, func(ctx context.Context) error {
			holder := Holder{Key: Slow, Instance: Steady, Trace: id, Since: time.Now()}
			if _, err := steady.memory.Load(ctx, ""); err != nil {
				return err
			}
			for n := range behind {
				wg.Go(func() { failures <- s.waitFor(base, waiting, holder, hold, n == 0) })
				if err := s.queued(ctx, Slow, n+1); err != nil {
					return err
				}
			}
			select { // the model thinks
			case <-time.After(hold):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return steady.memory.Save(ctx, "Why is the sky blue?", "Because of Rayleigh scattering.")
		})
	})
	wg.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return err
}

// waitFor plays a turn that waits for the holder. No other turn comes before the first one.
func (s *stage) waitFor(ctx context.Context, i *instance, holder Holder, hold time.Duration, first bool) error {
	began := time.Now()
	return i.message(ctx, holder.Key, func(ctx context.Context, id trace.TraceID) error {
		return i.memory.Turn(ctx, func(ctx context.Context) error {
			if first {
				s.waited(Wait{Key: holder.Key, Instance: i.name, Trace: id, Holder: holder,
					Outcome: distlock.OutcomeAcquired, AtLeast: hold, AtMost: time.Since(began)})
			}
			if _, err := i.memory.Load(ctx, ""); err != nil {
				return err
			}
			return i.memory.Save(ctx, "And at night?", "Then it is dark.")
		})
	})
}

// queued returns when n calls of Acquire wait for key, one of them at the service.
func (s *stage) queued(ctx context.Context, key string, n int) error {
	err := s.watch.await(ctx, fmt.Sprintf("%d waiters of %s", n, key),
		func() bool { return s.watch.waiting[key] >= n })
	for err == nil {
		var info distlock.Info
		if info, err = s.instances[Steady].locker.Inspect(ctx, key); info.Waiters > 0 {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return wrong("the queue", err)
}

// stick begins the turn that holds its lock until end is closed.
func (s *stage) stick(ctx context.Context, end <-chan struct{}) error {
	i := s.instances[Steady]
	holds, failed := make(chan struct{}), make(chan error, 1)
	s.last.Go(func() {
		failed <- i.message(ctx, Stuck, func(ctx context.Context, id trace.TraceID) error {
			return i.memory.Turn(ctx, func(context.Context) error {
				s.report.Stuck = Holder{Key: Stuck, Instance: Steady, Trace: id, Since: time.Now()}
				close(holds)
				<-end
				return nil
			})
		})
	})
	select {
	case <-holds:
		return nil
	case err := <-failed:
		return wrong("the turn that gets stuck", err)
	}
}

// impatience plays calls that find the session of the stuck turn busy.
func (s *stage) impatience(ctx context.Context) error {
	i := s.instances[Waiting]
	const short = 500 * time.Millisecond
	nothing := func(context.Context) error { return nil }
	for _, c := range []struct {
		outcome distlock.Outcome
		atLeast time.Duration
		call    func(ctx context.Context) error
	}{
		// This is the first one, so that the queue holds its own place. A waiter there knows the holder.
		{distlock.OutcomeCancelled, 0, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			left := make(chan error, 1)
			go func() { left <- s.queued(ctx, Stuck, 1); cancel() }()
			err := i.memory.Turn(ctx, nothing)
			return errors.Join(err, <-left)
		}},
		{distlock.OutcomeTimeout, short, func(ctx context.Context) error {
			return i.memory.Turn(ctx, nothing, distlock.WithWait(short))
		}},
		{distlock.OutcomeBusy, 0, func(ctx context.Context) error { return i.refuse.Turn(ctx, nothing) }},
	} {
		began := time.Now()
		err := i.message(ctx, Stuck, func(ctx context.Context, id trace.TraceID) error {
			err := c.call(ctx)
			s.waited(Wait{Key: Stuck, Instance: i.name, Trace: id, Holder: s.report.Stuck, Outcome: c.outcome,
				AtLeast: c.atLeast, AtMost: time.Since(began)})
			return err
		})
		sentinel := distlock.ErrNotAcquired
		if c.outcome == distlock.OutcomeCancelled {
			sentinel = context.Canceled
		}
		if err := want("the "+string(c.outcome)+" of "+Stuck, err, sentinel); err != nil {
			return err
		}
	}
	return nil
}

// queueUp lets a queue grow behind the stuck turn, until ctx of the waiters ends.
func (s *stage) queueUp(ctx, waiting context.Context) error {
	const queue = 3
	i := s.instances[Waiting]
	for range queue {
		s.last.Go(func() {
			_ = i.message(waiting, Stuck, func(ctx context.Context, _ trace.TraceID) error {
				return i.memory.Turn(ctx, func(context.Context) error { return nil })
			})
		})
	}
	s.report.Queue = queue
	return s.queued(ctx, Stuck, queue)
}
