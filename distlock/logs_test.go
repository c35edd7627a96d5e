package distlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// text is what a Logger has written.
type text struct{ bytes.Buffer }

// logged returns a Logger, and what it writes.
func logged() (*slog.Logger, *text) {
	log := new(text)
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), log
}

// want fails the test unless so many lines have a text.
func (l *text) want(t *testing.T, part string, want int) {
	t.Helper()
	if n := strings.Count(l.String(), part); n != want {
		t.Errorf("the log has %d times %q, want %d: %.2000s", n, part, want, l)
	}
}

const most = 10 // lines of a kind in a minute

// A fault may come with each call. The log stays readable, and says how many lines it lacks.
func TestLog_failingCalls_bounded(t *testing.T) {
	const n = 1000
	type row struct {
		text  string
		fault drivertest.Op // none: the lease is not renewed
		call  func(l *distlock.Locker, key string) error
	}
	each(t, map[string]row{
		"could not be released": {"could not be released", drivertest.Release, func(l *distlock.Locker, key string) error {
			return l.Do(context.Background(), key, nothing)
		}},
		"a lease was lost": {"a lease was lost", "", func(l *distlock.Locker, key string) error {
			return second(l.Acquire(context.Background(), key))
		}},
	}, func(t *testing.T, s *service, c row) {
		logger, log := logged()
		l := s.locker(t, logTo(logger), unrenewed)
		s.Inject(always(c.fault, errTurnedAway))
		for i := range n {
			must(t, c.call(l, fmt.Sprint(i)))
		}
		s.Inject(nil) // the clean-up has little to do
		time.Sleep(time.Minute)
		synctest.Wait()
		log.want(t, c.text, most)
		log.want(t, "left_out", 0)
		s.Inject(always(c.fault, errTurnedAway))
		must(t, c.call(l, "another"))
		time.Sleep(time.Minute)
		synctest.Wait()
		log.want(t, c.text, most+1)
		log.want(t, fmt.Sprint("left_out=", n-most), 1)
	})
}

// The calls of Release for one lease are one event.
func TestRelease_repeated_oneLine(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, log := logged()
		lease := mustAcquire(t, s.locker(t, logTo(logger)))
		s.Inject(always(drivertest.Release, errTurnedAway))
		for range 3 {
			wantErr(t, lease.Release(t.Context()), errTurnedAway)
		}
		synctest.Wait()
		log.want(t, "could not be released", 1)
		log.want(t, key, 0)
	})
}

// A duration is a number in JSON, so its name has the unit.
func TestLog_durations_inMilliseconds(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var log strings.Builder
		l := s.locker(t, logTo(slog.New(slog.NewJSONHandler(&log, nil))))
		lease := mustAcquire(t, l)
		time.Sleep(ttl / 2) // renewed at a third
		s.Inject(cutOff(errTurnedAway))
		<-lease.Context().Done()
		s.Inject(nil)
		time.Sleep(time.Second)
		lease = mustAcquire(t, l)
		s.Inject(always(drivertest.Release, errTurnedAway))
		_ = lease.Release(t.Context())
		synctest.Wait()
		for name, most := range map[string]float64{"held_ms": 2 * 3000, "ttl_ms": 3000} {
			_, number, _ := strings.Cut(log.String(), fmt.Sprintf("%q:", name))
			var got float64
			if _, err := fmt.Sscanf(number, "%g", &got); err != nil || got <= 100 || got > most {
				t.Errorf("%s is %v, %v, in %s", name, got, err, log.String())
			}
		}
	})
}

// ctxHandler keeps the value of the contexts of lines, by their texts.
type ctxHandler struct {
	slog.Handler
	seen map[string]any
}

type tagKey struct{}

func (h ctxHandler) Handle(ctx context.Context, line slog.Record) error {
	if _, deadline := ctx.Deadline(); deadline || ctx.Err() != nil {
		return fmt.Errorf("the context has ended or will end")
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(line.Message, "distlock: "), ";")
	h.seen[text] = ctx.Value(tagKey{})
	return nil
}

func (h ctxHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return ctx.Value(tagKey{}) != nil // the level may depend on ctx
}

// The Handler finds the values of the context under which a lease was acquired, also after its end.
func TestLog_hasTheContextOfTheLease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		handler := ctxHandler{slog.DiscardHandler, map[string]any{}}
		panics := atEnd(distlock.OpExtend, func() { panic("hook") })
		l := s.locker(t, logTo(slog.New(handler)), seenBy(panics))
		acquire := func(name string) *distlock.Lease {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), tagKey{}, name), time.Second)
			defer cancel()
			lease, err := l.Acquire(ctx, name)
			must(t, err)
			return lease
		}
		lost, released := acquire("lost"), acquire("released")
		s.Inject(cutOff(errTurnedAway))
		without(func() { _ = lost.Extend(lost.Context(), time.Minute) })
		_ = released.Release(t.Context())
		<-lost.Context().Done()
		synctest.Wait()
		for text, tag := range map[string]any{
			"a lease was lost": "lost", "a lock could not be released": "released", "a hook of the Observer panicked": "lost",
		} {
			if handler.seen[text] != tag {
				t.Errorf("%s: the context of %v, want that of %s", text, handler.seen[text], tag)
			}
		}
	})
}

// A call that waits for its own function is a mistake that only the log shows while it waits.
func TestLog_waitBehindOwnProcess_onceAfter1s(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, log := logged()
		l, other := s.locker(t, logTo(logger)), s.locker(t)
		waits := func(wait time.Duration, lines int) {
			t.Helper()
			wantErr(t, second(l.Acquire(t.Context(), key, distlock.WithWait(wait))), distlock.ErrNotAcquired)
			synctest.Wait()
			log.want(t, "behind a lease of its own process", lines)
		}
		held := mustAcquire(t, other)
		waits(2*time.Second, 0) // behind another process
		mustRelease(t, held)
		held = mustAcquire(t, l)
		waits(999*time.Millisecond, 0)
		waits(1001*time.Millisecond, 1)
		waits(2*time.Second, 1)
		mustRelease(t, held)
	})
}

// Waits behind leases that each last for less than a second are a queue.
func TestLog_queueOfShortLeases_noLine(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, log := logged()
		l := s.locker(t, logTo(logger))
		q := newQueue(t)
		for i := range 5 {
			q.join(l, fmt.Sprint(i), 900*time.Millisecond)
		}
		q.wg.Wait()
		log.want(t, "behind a lease of its own process", 0)
	})
}
