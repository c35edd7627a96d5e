package distlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// tardy is a service that does not answer for one name.
type tardy struct{ *spy }

func (s tardy) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	if req.Name.Key == "tardy" {
		<-ctx.Done()
		return driver.AcquireReply{}, ctx.Err()
	}
	return s.spy.Acquire(ctx, req)
}

// In a bubble, two timers at a time that are due when they are set crash the race detector; see positive.
// Without the race detector this test finds nothing, and with it not every time.
func TestTimers_areNotDueWhenTheyAreSet(t *testing.T) {
	const crowd, rounds = 20, 10
	for name, test := range map[string]func(t *testing.T, l *distlock.Locker){
		"the schedule of renewals": func(t *testing.T, l *distlock.Locker) {
			mustRelease(t, mustAcquire(t, l))
		},
		"the pause between attempts": func(t *testing.T, l *distlock.Locker) {
			held := mustAcquire(t, l)
			if _, err := l.Acquire(t.Context(), key, distlock.WithWait(ttl/2)); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("Acquire: %v", err)
			}
			mustRelease(t, held)
		},
		"a wait that is over": func(t *testing.T, l *distlock.Locker) {
			for range 5 {
				mustRelease(t, mustAcquire(t, l))
				if _, err := l.Acquire(t.Context(), "tardy", distlock.WithWait(time.Millisecond)); !errors.Is(err,
					distlock.ErrUnavailable) {
					t.Errorf("Acquire: %v", err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				for range rounds {
					var all sync.WaitGroup
					for range crowd {
						l, err := distlock.New(tardy{newService().spy}, &distlock.Options{TTL: ttl})
						if err != nil {
							t.Fatal(err)
						}
						all.Go(func() {
							test(t, l)
							mustClose(t, l)
						})
					}
					all.Wait()
				}
			})
		})
	}
}
