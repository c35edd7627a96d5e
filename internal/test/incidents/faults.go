package incidents

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
)

// The log lines of the scene, by message.
const (
	LineLost        = "distlock: a lease was lost"
	LineOutage      = "distlock: a renewal failed; it is tried again until the deadline of the lease"
	LineNotReleased = "distlock: a lock could not be released; " +
		"its clean-up goes on in the background, and the lock ends with its TTL"
	LinePolls = "distlock: the backend cannot notify waiters, so they poll; " +
		"check the right to subscribe and the network"
	LinePanic = "distlock: a hook of the Observer panicked; the operation went on"
)

// faults plays the faults of the lock service and of the network of one instance, one after the other.
func (s *stage) faults(ctx context.Context) error {
	i := s.instances[Unlucky]
	for _, fault := range []struct {
		key  string
		play func(ctx context.Context, i *instance) error
	}{
		{Polled, s.cannotBeNotified}, {Lost, s.losesItsLease}, {Outage, s.cannotRenew},
		{Unavailable, s.isUnavailable}, {Kept, s.cannotRelease},
		{Unheard, s.hearsNoAnswer}, {Panics, s.hookPanics},
	} {
		err := i.message(ctx, fault.key, func(ctx context.Context, _ trace.TraceID) error { return fault.play(ctx, i) })
		i.net.Heal()
		if err != nil {
			return wrong(fault.key, err)
		}
	}
	return nil
}

// cannotBeNotified waits without notifications, so it polls.
func (s *stage) cannotBeNotified(ctx context.Context, i *instance) error {
	var held *distlock.Lease
	steady := s.instances[Steady]
	err := steady.message(ctx, Polled, func(ctx context.Context, _ trace.TraceID) (err error) {
		held, err = steady.locker.Acquire(ctx, Polled)
		return err
	})
	if err != nil {
		return err
	}
	lost := i.net.DropReplies(faultnet.Containing("subscribe"))
	defer lost.Stop()
	failed := make(chan error, 1)
	go func() { failed <- i.locker.Do(ctx, Polled, func(context.Context) error { return nil }) }()
	err = s.watch.awaitLine(ctx, LinePolls)
	return errors.Join(err, held.Release(ctx), <-failed)
}

// losesItsLease is a turn whose lock expires at the service.
func (s *stage) losesItsLease(ctx context.Context, i *instance) error {
	err := i.memory.Turn(ctx, func(ctx context.Context) error {
		if err := s.expire(ctx, Lost); err != nil {
			return err
		}
		<-ctx.Done() // a renewal learns of the loss
		// The loss is reported in the background, and an ended span takes no event.
		return errors.Join(s.watch.awaitLine(context.WithoutCancel(ctx), LineLost), i.memory.Save(ctx, "Are you there?", "No."))
	})
	return want("the turn", err, distlock.ErrLost)
}

// cannotRenew is a turn whose renewals fail until the network is well again.
func (s *stage) cannotRenew(ctx context.Context, i *instance) error {
	return i.memory.Turn(ctx, func(ctx context.Context) error {
		i.net.Refuse()
		err := s.watch.await(ctx, "three failed renewals", func() bool { return s.watch.renewals(Outage, true) >= 3 })
		i.net.Heal()
		if err != nil {
			return err
		}
		err = s.watch.await(ctx, "a renewal", func() bool { return s.watch.renewals(Outage, false) >= 1 })
		return errors.Join(err, i.memory.Save(ctx, "Can you hear me?", "Now I can."))
	})
}

// isUnavailable is an attempt without the lock service.
func (s *stage) isUnavailable(ctx context.Context, i *instance) error {
	i.net.Refuse()
	_, err := i.locker.TryAcquire(ctx, Unavailable)
	return want("TryAcquire", err, distlock.ErrUnavailable)
}

// cannotRelease releases a lock without the lock service.
func (s *stage) cannotRelease(ctx context.Context, i *instance) error {
	lease, err := i.locker.Acquire(ctx, Kept)
	if err != nil {
		return err
	}
	i.net.Refuse()
	return errors.Join(want("Release", lease.Release(ctx), distlock.ErrUnavailable), s.watch.awaitLine(ctx, LineNotReleased))
}

// hearsNoAnswer is a Save that takes effect, but whose answer is lost.
func (s *stage) hearsNoAnswer(ctx context.Context, i *instance) error {
	err := i.memory.Turn(ctx, func(ctx context.Context) error {
		if _, err := i.memory.Load(ctx, ""); err != nil { // over the connection of the Save
			return err
		}
		lost := i.net.DropReplies(nil)
		defer lost.Stop()
		return i.memory.Save(ctx, "Did you get this?", "Perhaps.")
	})
	return want("Save", err, distlock.ErrOutcomeUnknown)
}

// hookPanics acquires a lock under an Observer that panics.
func (s *stage) hookPanics(ctx context.Context, i *instance) error {
	err := i.locker.Do(ctx, Panics, func(context.Context) error { return nil })
	return errors.Join(err, s.watch.awaitLine(ctx, LinePanic))
}
