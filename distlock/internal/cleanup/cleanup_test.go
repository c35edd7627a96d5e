package cleanup

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// backend records the releases that reach it, and answers them as fails says.
type backend struct {
	driver.Driver
	mu    sync.Mutex
	begun int // jobs
	now   int // releases under way
	most  int
	tries map[string][]time.Duration // since start, by owner
	start time.Time
	takes time.Duration
	fails func() bool
	close func()
}

func newBackend(takes time.Duration, fails func() bool) (*backend, *Cleaner) {
	b := &backend{tries: make(map[string][]time.Duration), start: time.Now(), takes: takes, fails: fails}
	closing, closes := context.WithCancel(context.Background())
	b.close = closes
	begin := func() bool { b.count(&b.begun, 1); return true }
	return b, New(closing, b, begin, func() { b.count(&b.begun, -1) })
}

func (b *backend) count(what *int, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*what += by
}

func (b *backend) Release(ctx context.Context, req driver.ReleaseRequest) (reply driver.ReleaseReply, err error) {
	b.mu.Lock()
	b.tries[req.Owner] = append(b.tries[req.Owner], time.Since(b.start))
	b.now++
	b.most = max(b.most, b.now)
	b.mu.Unlock()
	defer b.count(&b.now, -1)
	timer := time.NewTimer(max(b.takes, 1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return reply, ctx.Err()
	}
	if b.fails() {
		return reply, errors.New("away")
	}
	return reply, nil
}

func never() bool  { return false }
func always() bool { return true }

func cancel(c *Cleaner, owner string, pause time.Duration) {
	const ttl = 3 * time.Second
	req := driver.ReleaseRequest{Name: driver.Name{Key: "k"}, Owner: owner, Tombstone: Tombstone(ttl)}
	c.Add(req, ttl, pause)
}

func TestCleaner_jobEndsWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBackend(time.Millisecond, never)
		cancel(c, "a", time.Second)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := b.tries["a"]; !slices.Equal(got, []time.Duration{time.Second}) || b.begun != 0 {
			t.Errorf("tries at %s, %d jobs left", got, b.begun)
		}
	})
}

func TestCleaner_S1_triesAsLongAsTheTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBackend(time.Millisecond, always)
		cancel(c, "a", 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		tries := b.tries["a"]
		last := tries[len(tries)-1]
		if last < 115*time.Second || last > 2*time.Minute || b.begun != 0 {
			t.Errorf("%d tries until %s, %d jobs left", len(tries), last, b.begun)
		}
		for i, at := range tries[1:] {
			if pause := at - tries[i]; pause > 5*time.Second {
				t.Errorf("a pause of %s", pause)
			}
		}
	})
}

func TestCleaner_C_manyJobs_sixteenAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBackend(10*time.Millisecond, never)
		for i := range 160 {
			cancel(c, strconv.Itoa(i), 0)
		}
		time.Sleep(101 * time.Millisecond)
		synctest.Wait()
		if len(b.tries) != 160 || b.begun != 0 || b.most != most {
			t.Errorf("%d jobs were tried, %d left, at most %d at a time", len(b.tries), b.begun, b.most)
		}
	})
}

// A clean-up that cannot succeed for minutes costs no goroutine, and is given up when nothing can arrive
// any more.
func TestCleaner_C_awayForLong_fewGoroutines(t *testing.T) {
	const jobs = 20_000
	synctest.Test(t, func(t *testing.T) {
		b, c := newBackend(time.Hour, always) // hangs
		before := runtime.NumGoroutine()
		for i := range jobs {
			cancel(c, strconv.Itoa(i), 0)
		}
		for range 4 {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > 2*most {
				t.Errorf("%d goroutines", n)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.begun != 0 {
			t.Errorf("%d jobs left", b.begun)
		}
	})
}

func TestCleaner_close(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration // of the job, 10 s before Close
		want  time.Duration // after Close the next try
	}{
		"a job that was tried is tried at once":    {0, 0},
		"a job that was not tried keeps its pause": {10*time.Second + 200*time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var open sync.Mutex
				away := true
				b, cl := newBackend(time.Millisecond, func() bool { open.Lock(); defer open.Unlock(); return away })
				cancel(cl, "a", c.pause)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				open.Lock()
				away = false
				open.Unlock()
				b.close()
				time.Sleep(CloseGrace)
				synctest.Wait()
				tries := b.tries["a"]
				if last := tries[len(tries)-1]; last != 10*time.Second+c.want || b.begun != 0 || cl.ctx.Err() == nil {
					t.Errorf("the last try after %s, %d jobs left", last, b.begun)
				}
			})
		})
	}
}

func TestCleaner_closed_endsWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBackend(time.Hour, always) // hangs
		for i := range 100 {
			cancel(c, strconv.Itoa(i), 0)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.close()
		cancel(c, "late", 0) // has one try
		time.Sleep(CloseGrace + time.Millisecond)
		synctest.Wait()
		if b.begun != 0 || len(b.tries["late"]) != 1 {
			t.Errorf("%d jobs left, the late one had %d tries", b.begun, len(b.tries["late"]))
		}
	})
}
