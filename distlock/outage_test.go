package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestAcquire_outlivesAnInterruptionOfTheService(t *testing.T) {
	const many = 1 << 20
	type row struct {
		busy  bool // the service has answered that the lock is held, before it fails
		err   error
		calls int
		try   bool
		want  error         // nil: a lease
		took  time.Duration // at most
	}
	each(t, map[string]row{
		"turned away for a moment": {err: errTurnedAway, calls: 5, took: time.Second},
		"turned away for the whole wait": {err: errTurnedAway, calls: many, want: distlock.ErrUnavailable,
			took: 2 * time.Second},
		"turned away, without waiting":   {err: errTurnedAway, calls: 1, try: true, want: distlock.ErrUnavailable},
		"no answer at all":               {err: errSilence, calls: 1, want: distlock.ErrUnavailable},
		"no answer for a moment, queued": {busy: true, err: errSilence, calls: 5, took: 2 * time.Second},
		"no answer any more, queued": {busy: true, err: errSilence, calls: many, want: distlock.ErrUnavailable,
			took: 2 * time.Second},
		"a right is missing, in the queue": {busy: true, err: errForbidden, calls: many, want: distlock.ErrRefused,
			took: time.Second},
		"other data, in the queue": {busy: true, err: driver.ErrForeign, calls: many, want: distlock.ErrRefused,
			took: time.Second},
		"a right is missing from the start": {err: errForbidden, calls: 1, want: distlock.ErrRefused},
		"turned away for a moment, queued":  {busy: true, err: errTurnedAway, calls: 5, took: 2 * time.Second},
		"turned away for the wait, queued": {busy: true, err: errTurnedAway, calls: many, want: distlock.ErrUnavailable,
			took: 2 * time.Second},
	}, func(t *testing.T, s *service, c row) {
		first := 0
		if c.busy {
			first = 1
			holder := mustAcquire(t, s.twin().locker(t, withHolder("the holder")))
			time.AfterFunc(time.Second, func() { _ = holder.Release(context.Background()) })
		}
		l := s.locker(t, withWait(2*time.Second))
		s.Inject(from(drivertest.Acquire, first, c.calls, drivertest.Fault{Before: c.err}))
		acquire := l.Acquire
		if c.try {
			acquire = l.TryAcquire
		}
		start := time.Now()
		lease, err := acquire(t.Context(), key)
		took := time.Since(start)
		if !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, c.err) {
			t.Errorf("Acquire: %v, want %v", err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "%!") || errors.Is(err, distlock.ErrNotAcquired) ||
			strings.Contains(err.Error(), "the holder") != c.busy) {
			t.Errorf("Acquire: %v", err)
		}
		if took > c.took {
			t.Errorf("it took %s, more than %s", took, c.took)
		}
		if c.want == nil && err == nil {
			mustRelease(t, lease)
		}
	})
}

// A backend that has gone ends a wait without a limit.
func TestAcquire_C_anOutageOfATTLEndsTheWait(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mustAcquire(t, s.twin().locker(t))
		l := s.locker(t, patient)
		// The first answer is busy.
		s.Inject(from(drivertest.Acquire, 1, 1<<20, drivertest.Fault{Before: errTurnedAway}))
		start := time.Now()
		_, err := l.Acquire(t.Context(), key)
		if took := time.Since(start); !errors.Is(err, distlock.ErrUnavailable) || took < ttl || took > ttl+time.Second {
			t.Errorf("Acquire: %v after %s, want ErrUnavailable after a TTL", err, took)
		}
	})
}

// The last request has the rest of the patience, which is often too short for an answer.
func TestAcquire_silenceAfterARefusal_showsTheRefusal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		released := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.N < 3 {
				return drivertest.Fault{Before: errTurnedAway}
			}
			return drivertest.Fault{HoldBefore: released}
		})
		_, err := l.Acquire(t.Context(), key)
		close(released)
		wantErr(t, err, distlock.ErrUnavailable)
		wantErr(t, err, errTurnedAway)
	})
}

// An acquisition that the service has cancelled can never succeed.
func TestAcquire_S1_aCancelledOneIsNoGrant(t *testing.T) {
	each(t, map[string][]driver.AcquireReply{
		"at once": {{Outcome: driver.Cancelled}},
		"queued":  {{Outcome: driver.Busy}, {Outcome: driver.Cancelled}},
	}, func(t *testing.T, s *service, list []driver.AcquireReply) {
		s.OnAcquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
			asked, _ := s.Asked()
			return list[min(len(asked), len(list))-1], nil
		}
		start := time.Now()
		lease, err := s.locker(t).Acquire(t.Context(), key)
		if lease != nil || !errors.Is(err, distlock.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("Acquire: %v, %v after %s", lease, err, time.Since(start))
		}
	})
}

// A lock that does not expire gives no moment to wait for.
func TestAcquire_doesNotStormALockThatDoesNotExpire(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		s.OnAcquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
			return driver.AcquireReply{State: driver.State{Held: true, TTL: -time.Millisecond}}, nil
		}
		wantErr(t, second(s.locker(t).Acquire(t.Context(), key)), distlock.ErrNotAcquired)
		if n := s.Calls(drivertest.Acquire); n > 200 {
			t.Errorf("%d requests in 5 s", n)
		}
	})
}

func TestAcquire_cancelledDuringAnInterruptionSaysBoth(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		s.Inject(always(drivertest.Acquire, errTurnedAway))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := l.Acquire(ctx, key)
		wantErr(t, err, context.Canceled)
		wantErr(t, err, distlock.ErrUnavailable)
		wantTook(t, start, time.Second)
	})
}

func TestRelease_thatFailsIsTriedAgainInTheBackground(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(from(drivertest.Release, 0, 3, drivertest.Fault{Before: errTurnedAway}))
		wantErr(t, lease.Release(t.Context()), distlock.ErrUnavailable)
		time.Sleep(500 * time.Millisecond)
		s.wantFree(t)
		s.Inject(nil)
		mustRelease(t, lease) // says what has become of it
	})
}

// The Locker gives a call up after some time by itself. That is no deadline of the caller's.
func TestAcquire_C_ownLimitIsNotTheCallersDeadline(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		check := func(call string, err, want error, text string) {
			t.Helper()
			if !errors.Is(err, want) || errors.Is(err, context.DeadlineExceeded) ||
				!strings.HasSuffix(err.Error(), text) || strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
				t.Errorf("%s: %v, want %v with %q", call, err, want, text)
			}
		}
		const client = "no answer within the timeouts of the client; check the lock service and the network to it"
		s.Inject(always(drivertest.Acquire, fmt.Errorf("a client: %w", context.DeadlineExceeded)))
		check("Acquire", second(l.Acquire(t.Context(), key)), distlock.ErrUnavailable, client)
		s.Inject(always(drivertest.Acquire, dialTimeout{}))
		check("Acquire", second(l.Acquire(t.Context(), key)), distlock.ErrUnavailable,
			client+": dial tcp 192.0.2.1:6379: i/o timeout")
		// One that has waited for as long as it may: the deadline was the Locker's.
		s.Inject(func(drivertest.Call) drivertest.Fault {
			return drivertest.Fault{Before: context.DeadlineExceeded, HoldBefore: in(ttl)}
		})
		limit := "no answer within 3s; check the lock service and the network to it"
		check("Acquire without an answer", second(l.Acquire(t.Context(), key)), distlock.ErrUnavailable, limit)
		check("Inspect without an answer", second(l.Inspect(t.Context(), key)), distlock.ErrUnavailable, limit)
		s.Inject(nil)
		lease := mustAcquire(t, l)
		s.Inject(always(drivertest.Extend, context.DeadlineExceeded))
		check("Extend", lease.Extend(t.Context(), time.Minute), distlock.ErrOutcomeUnknown, client)
	})
}

// dialTimeout is the error of a connection that a context's deadline has ended, as package net has it.
type dialTimeout struct{}

func (dialTimeout) Error() string        { return "dial tcp 192.0.2.1:6379: i/o timeout" }
func (dialTimeout) Is(target error) bool { return target == context.DeadlineExceeded }

// A lease that was lost or released is no holder: the backend that is silent then is unavailable.
func TestQueue_C_localHolderGone_silenceIsNoContention(t *testing.T) {
	type row struct {
		loses, hangs bool
		took         time.Duration // since the end of the lease
	}
	each(t, map[string]row{
		"lost, no answer":     {loses: true, hangs: true, took: time.Second},
		"lost, cut off":       {loses: true},
		"released, no answer": {hangs: true, took: time.Second},
	}, func(t *testing.T, s *service, c row) {
		l := open(t, mute{s.Faults})
		holder := mustAcquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		failed := async(func() error { return second(l.Acquire(ctx, key)) })
		time.Sleep(time.Second)
		fault := drivertest.Fault{Before: errSilence}
		if c.hangs {
			fault.HoldBefore = in(time.Hour)
		}
		s.Inject(on(drivertest.Acquire, fault))
		if c.loses {
			s.steal(t)
		} else {
			mustRelease(t, holder)
		}
		<-holder.Context().Done()
		start := time.Now()
		time.AfterFunc(time.Second, cancel)
		if err := <-failed; err == nil || errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("Acquire: %v, want no BusyError", err)
		}
		wantTook(t, start, c.took)
	})
}
