// Package cleanup releases, in the background, the locks in the backend that have no holder: what an
// acquisition with an unknown outcome may have taken, what a lost lease may have left, and what a
// release could not remove.
//
//	c.Add(releaseRequest, ttl, 0)
package cleanup

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// most bounds the tries under way, and the goroutines: enough to undo some hundred grants
	// within a second at a distance of 50 ms, and to work beside a few that hang.
	most = 16
	// firstTry is how long the first try may take. Each further try has twice as long, up to lastTry.
	firstTry = 250 * time.Millisecond
	lastTry  = time.Second
	// MinPause and maxPause bound the pause before another try.
	MinPause = 10 * time.Millisecond
	maxPause = time.Second
	// CloseGrace is how long a closed Cleaner goes on.
	CloseGrace = time.Second
	// minTombstone is the shortest life of a tombstone. A lost request may arrive after its client has
	// left: Linux resends the data of a closed connection for 102 s (tcp_orphan_retries 8).
	minTombstone = 2 * time.Minute
)

// Cleaner tries each job until the backend has answered, or until the lock has ended with its TTL
// and no request can still arrive, see [Tombstone]. A job has a timer between its tries, and no goroutine.
type Cleaner struct {
	driver driver.Driver
	begin  func() bool
	end    func()

	ctx     context.Context // of the tries; ends CloseGrace after closing
	closing context.Context

	mu      sync.Mutex
	paused  map[*job]*time.Timer
	due     []*job // wait for a try
	workers int    // goroutines that make the tries, at most most
}

// job is one lock to release.
type job struct {
	req   driver.ReleaseRequest
	until time.Time // no try begins later
	tries int
}

// New returns a Cleaner. The end of closing starts the next try of each job that has had one, and ends all
// jobs after [CloseGrace]. Begin counts a job as work under way, until end; after the end of closing it may
// refuse.
func New(closing context.Context, d driver.Driver, begin func() bool, end func()) *Cleaner {
	c := &Cleaner{driver: d, closing: closing, begin: begin, end: end, paused: make(map[*job]*time.Timer)}
	ctx, stop := context.WithCancel(context.WithoutCancel(closing))
	c.ctx = ctx
	context.AfterFunc(closing, func() {
		time.AfterFunc(CloseGrace, stop)
		c.tryNow()
	})
	context.AfterFunc(ctx, c.tryNow)
	return c
}

// Tombstone is how long the backend refuses a cancelled owner. The clean-up tries for as long.
func Tombstone(ttl time.Duration) time.Duration { return max(ttl, minTombstone) }

// Add sends req after a pause, and again until it succeeds, or until the longer of ttl and the life of
// its tombstone has passed.
func (c *Cleaner) Add(req driver.ReleaseRequest, ttl, pause time.Duration) {
	if !c.begin() {
		return
	}
	j := &job{req: req, until: time.Now().Add(pause + max(ttl, req.Tombstone))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if pause > 0 {
		c.pauseLocked(j, pause)
	} else {
		c.dueLocked(j)
	}
}

func (c *Cleaner) pauseLocked(j *job, pause time.Duration) {
	c.paused[j] = time.AfterFunc(max(pause, 1), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resumeLocked(j)
	})
}

// resumeLocked ends the pause of a job, unless the job goes on already.
func (c *Cleaner) resumeLocked(j *job) {
	if timer := c.paused[j]; timer != nil {
		timer.Stop()
		delete(c.paused, j)
		c.dueLocked(j)
	}
}

func (c *Cleaner) dueLocked(j *job) {
	c.due = append(c.due, j)
	if c.workers < most {
		c.workers++
		go c.work()
	}
}

// tryNow ends the pauses between two tries. ⚑ The work under a lost lease keeps its margin before the first.
func (c *Cleaner) tryNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for j := range c.paused {
		if j.tries > 0 {
			c.resumeLocked(j)
		}
	}
}

// work makes the tries that are due, one after the other.
func (c *Cleaner) work() {
	for j := c.next(); j != nil; j = c.next() {
		if c.try(j) || !c.tryAgain(j) {
			c.end()
		}
	}
}

// next takes out the first job that is due. It returns nil if none is, and the worker has to end.
func (c *Cleaner) next() (j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.due) == 0 {
		c.workers--
		return nil
	}
	j, c.due = c.due[0], c.due[1:]
	return j
}

// try sends the request, and reports whether the backend has answered.
func (c *Cleaner) try(j *job) bool {
	if time.Now().After(j.until) {
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, min(firstTry<<min(j.tries, 16), lastTry))
	defer cancel()
	_, err := c.driver.Release(ctx, j.req)
	return err == nil
}

// tryAgain plans another try, unless the time of the job is over.
func (c *Cleaner) tryAgain(j *job) bool {
	longest := maxPause
	if c.closing.Err() != nil {
		longest = CloseGrace / 4
	}
	pause := min(MinPause<<min(j.tries, 16), longest)
	pause = pause/2 + rand.N(pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	j.tries++
	if time.Now().Add(pause).After(j.until) || c.ctx.Err() != nil {
		return false
	}
	c.pauseLocked(j, pause)
	return true
}
