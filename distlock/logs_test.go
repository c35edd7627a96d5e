package distlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// logged returns a Logger, and a function that counts the lines with a text.
func logged() (*slog.Logger, func(text string) int) {
	var log bytes.Buffer
	handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
	return slog.New(handler), func(text string) int { return strings.Count(log.String(), text) }
}

const most = 10 // lines of a kind in a minute

// A fault may come with each call. The log stays readable, and says how many lines it lacks.
func TestLog_failingCalls_bounded(t *testing.T) {
	const n = 1000
	for text, c := range map[string]struct {
		fault drivertest.Op // none: the lease is not renewed
		call  func(t *testing.T, l *distlock.Locker, key string)
	}{
		"could not be released": {drivertest.Release, func(t *testing.T, l *distlock.Locker, key string) {
			if err := l.Do(t.Context(), key, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}},
		"a lease was lost": {"", func(t *testing.T, l *distlock.Locker, key string) {
			if _, err := l.Acquire(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(text, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				logger, count := logged()
				l := s.locker(t, distlock.Options{Logger: logger, RenewEvery: -1})
				s.Inject(always(c.fault, errTurnedAway))
				for i := range n {
					c.call(t, l, fmt.Sprint(i))
				}
				s.Inject(nil) // the clean-up has little to do
				time.Sleep(time.Minute)
				synctest.Wait()
				if lines := count(text); lines != most || count("left_out") != 0 {
					t.Errorf("%d calls: %d lines, want %d", n, lines, most)
				}
				s.Inject(always(c.fault, errTurnedAway))
				c.call(t, l, "another")
				time.Sleep(time.Minute)
				synctest.Wait()
				if count(text) != most+1 || count(fmt.Sprint("left_out=", n-most)) != 1 {
					t.Errorf("the line after that does not say that %d were left out", n-most)
				}
			})
		})
	}
}

// The calls of Release for one lease are one event.
func TestRelease_repeated_oneLine(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, count := logged()
		l := s.locker(t, distlock.Options{Logger: logger})
		lease := mustAcquire(t, l)
		s.Inject(always(drivertest.Release, errTurnedAway))
		for range 3 {
			if err := lease.Release(t.Context()); err == nil {
				t.Error("Release: no error")
			}
		}
		synctest.Wait()
		if n := count("could not be released"); n != 1 {
			t.Errorf("%d lines, want 1", n)
		}
	})
}

// A duration is a number in JSON, so its name has the unit.
func TestLog_durations_inMilliseconds(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		var log strings.Builder
		l := s.locker(t, distlock.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
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
		l := s.locker(t, distlock.Options{Logger: slog.New(handler), Observer: panics})
		acquire := func(name string) *distlock.Lease {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), tagKey{}, name), time.Second)
			defer cancel()
			lease, err := l.Acquire(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		lost, released := acquire("lost"), acquire("released")
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errTurnedAway} })
		without(func() { _ = lost.Extend(lost.Context(), time.Minute) })
		_ = released.Release(t.Context())
		<-lost.Context().Done()
		synctest.Wait()
		want := map[string]any{"a lease was lost": "lost", "a lock could not be released": "released",
			"a hook of the Observer panicked": "lost"}
		for text, tag := range want {
			if handler.seen[text] != tag {
				t.Errorf("%s: the context of %v, want that of %s", text, handler.seen[text], tag)
			}
		}
	})
}

// A call that waits for its own function is a mistake that only the log shows while it waits.
func TestLog_waitBehindOwnProcess_onceAfter1s(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		logger, count := logged()
		l, other := s.locker(t, distlock.Options{Logger: logger}), s.locker(t, distlock.Options{})
		waits := func(wait time.Duration, lines int) {
			t.Helper()
			if _, err := l.Acquire(t.Context(), key, distlock.WithWait(wait)); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Error(err)
			}
			synctest.Wait()
			if n := count("behind a lease of its own process"); n != lines {
				t.Errorf("%d lines after a wait of %s, want %d", n, wait, lines)
			}
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
		logger, count := logged()
		l := s.locker(t, distlock.Options{Logger: logger})
		q := newQueue(t)
		for i := range 5 {
			q.join(l, fmt.Sprint(i), 900*time.Millisecond)
		}
		q.wg.Wait()
		if n := count("behind a lease of its own process"); n != 0 {
			t.Errorf("%d lines", n)
		}
	})
}
