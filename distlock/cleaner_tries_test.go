package distlock_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// timed hangs, and notes by owner how long each release was given.
type timed struct {
	*hanging
	mu    sync.Mutex
	given map[string][]time.Duration
}

func newTimed() (*timed, *service) {
	d := &timed{hanging: &hanging{spy: newService().spy}, given: map[string][]time.Duration{}}
	return d, &service{Faults: drivertest.NewFaults(d), spy: d.spy}
}

func (d *timed) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	deadline, _ := ctx.Deadline()
	d.mu.Lock()
	d.given[req.Owner] = append(d.given[req.Owner], time.Until(deadline))
	d.mu.Unlock()
	return d.hanging.Release(ctx, req)
}

// tries returns the noted tries.
func (d *timed) tries() map[string][]time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.given)
}

func all(driver.Name) bool { return true }

// However long a service is away, each try has its time, and the next one comes soon.
func TestCleanUp_outlastsALongOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, s := newTimed()
		l := s.locker(t, distlock.Options{TTL: time.Hour})
		d.choose(all)
		s.Inject(after(drivertest.Acquire, errSilence))
		_, _ = l.Acquire(t.Context(), key)
		time.Sleep(10 * time.Minute)
		d.choose(nil)
		time.Sleep(3 * time.Second)
		s.wantFree(t)
		given := d.tries()[s.granted().Owner]
		for i, got := range given {
			if want := min(250*time.Millisecond<<min(i, 2), time.Second); got != want {
				t.Errorf("try %d had %s, want %s", i, got, want)
			}
		}
		if n := len(given); n < 200 || n > 600 {
			t.Errorf("%d tries in 10 minutes", n)
		}
	})
}

// Each of many clean-ups has a first try. No try comes after two minutes.
func TestCleanUp_ofManyEndsInTwoMinutes(t *testing.T) {
	const leases = 300 // the first tries take 4.7 s
	inBubble(t, func(t *testing.T) {
		d, s := newTimed()
		l := s.locker(t, distlock.Options{})
		for i := range leases {
			if _, err := l.Acquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		d.choose(all)
		time.Sleep(3 * ttl) // all were lost after one
		if tried := len(d.tries()); tried != leases {
			t.Errorf("%d of %d were tried", tried, leases)
		}
		time.Sleep(2 * time.Minute)
		before := s.Calls(drivertest.Release)
		time.Sleep(time.Minute)
		if more := s.Calls(drivertest.Release) - before; more > 0 {
			t.Errorf("%d tries later on", more)
		}
	})
}
