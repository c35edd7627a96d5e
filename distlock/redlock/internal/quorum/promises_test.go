package quorum_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/pace"
)

// The driver under faults by chance: messages are lost, late and doubled, and nodes restart or hang. Its
// clients trust the whole TTL, because all clocks are one.

var (
	realRuns = flag.Int("real-runs", pace.Rounds(25), "how many runs TestQuorum_S1_promisesUnderFaults has")
	realSeed = flag.Uint64("real-seed", 0, "the seed of the first run; 0: by chance")
)

const (
	realTTL    = 200 * time.Millisecond
	realLength = 3 * time.Second
)

// realWorld is one run. The mutex guards all of it.
type realWorld struct {
	*testing.T
	name    driver.Name
	servers []*server

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool
	lose    float64
	late    float64
	until   map[*realClient]time.Time // the deadlines of those that hold the name
	highest int64
	grants  int
	lost    int
}

func (w *realWorld) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.rng.Float64() < p
}

func (w *realWorld) between(a, b time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a + time.Duration(w.rng.Int64N(int64(b-a)+1))
}

// fault says how a request to a server fares.
func (w *realWorld) fault(request) (f fault) {
	switch {
	case w.chance(w.lose / 2):
		return fault{before: errLost}
	case w.chance(w.lose / 2):
		f.after = errLost
	}
	f.hold, f.answer = w.delay(), w.delay()
	return f
}

// delay is closed when a message arrives.
func (w *realWorld) delay() <-chan struct{} {
	d := w.between(50*time.Microsecond, 800*time.Microsecond)
	switch {
	case w.chance(w.late / 2):
		d = w.between(time.Millisecond, 50*time.Millisecond)
	case w.chance(w.late / 2):
		d = w.between(0, 3*realTTL)
	}
	return after(d)
}

// used checks a token that a client begins to use, and what it may do until then.
func (w *realWorld) used(c *realClient, token int64, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, end := range w.until {
		if other != c && time.Now().Before(end) {
			w.Errorf("S1: two clients hold the name, one of them for %v more", time.Until(end))
		}
	}
	if token <= w.highest {
		w.Errorf("token %d after %d", token, w.highest)
	}
	w.highest, w.until[c] = max(w.highest, token), until
}

// realClient is one process.
type realClient struct {
	w *realWorld
	d driver.Driver
}

func (w *realWorld) connect() *realClient {
	return &realClient{w: w, d: connect(w.servers, realTTL)}
}

// turn tries to hold the name once. It reports whether the process lives on.
func (c *realClient) turn() bool {
	w := c.w
	w.mu.Lock()
	req := driver.AcquireRequest{Name: w.name, Owner: fmt.Sprintf("%016x%016x", w.rng.Uint64(), w.rng.Uint64()), TTL: realTTL}
	w.mu.Unlock()
	unknown := false
	for range 8 {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), w.between(realTTL/10, realTTL))
		reply, err := c.d.Acquire(ctx, req)
		cancel()
		unknown = unknown || driver.MayHaveEffect(err)
		switch {
		case err == nil && reply.Outcome == driver.Granted:
			if time.Since(sent) < realTTL*3/4 {
				return c.hold(req, reply, sent)
			}
			unknown = true
		case err == nil && reply.Outcome == driver.Busy:
			time.Sleep(w.between(time.Millisecond, 8*time.Millisecond))
			continue
		}
		break
	}
	if unknown {
		c.release(driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: 2 * time.Minute})
	}
	return true
}

// hold works under a grant, and releases it. It returns false if the process dies instead.
func (c *realClient) hold(req driver.AcquireRequest, grant driver.AcquireReply, sent time.Time) bool {
	w := c.w
	until, token, end := sent.Add(realTTL), grant.Fence, grant.FenceEnd
	w.used(c, token, until)
	w.mu.Lock()
	w.grants++
	w.mu.Unlock()
	for {
		time.Sleep(w.between(0, realTTL/4))
		ctx, cancel := context.WithDeadline(context.Background(), until)
		sent := time.Now()
		switch {
		case !sent.Before(until):
		case w.chance(0.1) && token < end: // a local handoff
			token++
			w.used(c, token, until)
		case w.chance(0.1):
			reply, err := c.d.Raise(ctx, driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: token + 1})
			if err == nil && !reply.Held {
				until = sent
			}
			if err == nil && time.Now().Before(until) && reply.Fence > token {
				token, end = reply.Fence, reply.FenceEnd
				w.used(c, token, until)
			}
		case w.chance(0.7):
			reply := c.d.Extend(ctx, []driver.ExtendRequest{{Name: req.Name, Owner: req.Owner, TTL: realTTL}})[0]
			switch {
			case reply.Err == nil && !reply.Held:
				w.mu.Lock()
				w.lost++
				w.mu.Unlock()
				until = sent
			case reply.Err == nil && time.Now().Before(until) && sent.Add(realTTL).After(until):
				until = sent.Add(realTTL)
				w.deadline(c, until)
			}
		case w.chance(0.1): // a crash
			cancel()
			w.deadline(c, time.Time{})
			return false
		default:
			until = sent
		}
		cancel()
		if !time.Now().Before(until) {
			w.deadline(c, time.Time{})
			c.release(driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return true
		}
	}
}

func (w *realWorld) deadline(c *realClient, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until[c] = until
}

// release goes on until it is answered, as the clean-up of a Locker does.
func (c *realClient) release(req driver.ReleaseRequest) {
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), realTTL)
		_, err := c.d.Release(ctx, req)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *realClient) close() {
	if err := c.d.Close(); err != nil {
		c.w.Error(err)
	}
}

// disturb restarts a server, or cuts it off, now and then.
func (w *realWorld) disturb(until time.Time) {
	for time.Now().Before(until) {
		s := w.servers[int(w.between(0, time.Duration(len(w.servers)-1)))]
		switch time.Sleep(w.between(realTTL/4, 2*realTTL)); {
		case w.chance(0.4):
			s.restart()
		case w.chance(0.5):
			s.fails(driver.ErrNotDone)
			time.Sleep(w.between(time.Millisecond, 2*realTTL))
			s.fails(nil)
		default:
			resume := s.hang()
			time.Sleep(w.between(time.Millisecond, 2*realTTL))
			resume()
		}
	}
}

// run lets clients compete under faults. Then the faults end, and a new client asks for the name.
func (w *realWorld) run(seed uint64) {
	w.rng = rand.New(rand.NewPCG(seed, 21))
	w.name, w.until = driver.Name{Namespace: "promises", Key: "name"}, map[*realClient]time.Time{}
	w.servers = newServers([]int{3, 3, 3, 5}[seed%4])
	pick := func(of ...float64) float64 { return of[w.rng.IntN(len(of))] }
	w.lose, w.late = pick(0, 0.01, 0.05), pick(0, 0.05, 0.2)
	injectAll(w.servers, w.fault)
	until := time.Now().Add(realLength)
	var all sync.WaitGroup
	if seed%3 > 0 {
		all.Go(func() { w.disturb(until) })
	}
	for range 2 + seed%2 {
		all.Go(func() {
			c := w.connect()
			for time.Now().Before(until) {
				if !c.turn() {
					c.close()
					c = w.connect()
				}
				time.Sleep(w.between(0, realTTL/4))
			}
			c.close()
		})
	}
	all.Wait()
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(6 * realTTL) // late messages have arrived, and the last grant has ended
	c := w.connect()
	defer c.close()
	req := driver.AcquireRequest{Name: w.name, Owner: "0123456789abcdef0123456789abcdef", TTL: realTTL}
	reply, err := c.d.Acquire(w.Context(), req)
	if err != nil || reply.Outcome != driver.Granted {
		w.Errorf("the free name was not granted: %+v, %v", reply, err)
	}
}

func TestQuorum_S1_promisesUnderFaults(t *testing.T) {
	first := *realSeed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	start, grants, lost := time.Now(), 0, 0
	for i := range *realRuns {
		seed := first + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			w := &realWorld{T: t}
			w.run(seed)
			grants, lost = grants+w.grants, lost+w.lost
		})
		if t.Failed() {
			t.Fatal("the seed is", seed)
		}
	}
	t.Logf("%d runs, %d grants, %d lost, %v", *realRuns, grants, lost, time.Since(start))
}
