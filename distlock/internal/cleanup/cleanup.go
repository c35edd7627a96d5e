// Package cleanup releases, in the background, the locks in the backend that have no holder: what an
// acquisition with an unknown outcome may have taken, what a lost lease may have left, and what a
// release could not remove.
//
//	c.Cancel(acquireRequest, 0)
package cleanup

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// most bounds the tries under way: enough to undo some hundred grants within a second at a distance
	// of 50 ms, and to work beside a few that hang.
	most = 16
	// firstTry is how long the first try may take. Each further try has twice as long, up to lastTry.
	firstTry = 250 * time.Millisecond
	lastTry  = time.Second
	// MinPause and maxPause bound the pause before another try.
	MinPause = 10 * time.Millisecond
	maxPause = time.Second
	// latePause bounds the pause after the lock has ended with its TTL. An outage may leave many jobs.
	latePause = 3 * time.Second
	// CloseGrace is how long a closed Cleaner goes on.
	CloseGrace = time.Second
	// minTombstone is the shortest life of a tombstone. A lost request may arrive after its client has
	// left: Linux resends the data of a closed connection for 102 s (tcp_orphan_retries 8).
	minTombstone = 2 * time.Minute
)

// Cleaner tries each job until the backend has answered, or until the lock has ended with its TTL
// and no request can still arrive, see [Tombstone]. Each job has a goroutine.
type Cleaner struct {
	// Release sends a request.
	Release func(context.Context, driver.ReleaseRequest) error
	// Go runs a job in a goroutine, or drops it.
	Go func(job func())
	// GaveUp reports a job that ends without an answer, and why.
	GaveUp func(req driver.ReleaseRequest, tries int, err error)

	ctx     context.Context // of the tries; ends CloseGrace after closing
	closing context.Context
	trying  chan struct{} // holds a token for each try under way
}

// New returns a Cleaner whose functions are to be set before its use. The end of closing starts the next
// try of each job that has had one, and ends all jobs after [CloseGrace].
func New(closing context.Context) *Cleaner {
	c := &Cleaner{closing: closing, trying: make(chan struct{}, most)}
	ctx, stop := context.WithCancel(context.WithoutCancel(closing))
	c.ctx = ctx
	context.AfterFunc(closing, func() { time.AfterFunc(CloseGrace, stop) })
	return c
}

// Context ends [CloseGrace] after closing.
func (c *Cleaner) Context() context.Context { return c.ctx }

// Tombstone is how long the backend refuses a cancelled owner. The clean-up tries for as long.
func Tombstone(ttl time.Duration) time.Duration { return max(ttl, minTombstone) }

// Cancel ends, after a pause, the present or future grant of req. The backend keeps a tombstone of
// the owner, so it refuses a copy of req that arrives later.
func (c *Cleaner) Cancel(req driver.AcquireRequest, pause time.Duration) {
	c.Add(driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: Tombstone(req.TTL)}, req.TTL, pause)
}

// Add sends req after a pause, and again until it succeeds, or until the longer of ttl and the life of
// its tombstone has passed.
func (c *Cleaner) Add(req driver.ReleaseRequest, ttl, pause time.Duration) {
	c.Go(func() { c.run(req, ttl, pause) })
}

// run is one job. The end of closing ends a pause between two tries. It does not end the pause
// before the first: the work under a lost lease keeps its margin.
func (c *Cleaner) run(req driver.ReleaseRequest, ttl, pause time.Duration) {
	if pause > 0 {
		time.Sleep(pause)
	}
	start, hurry := time.Now(), c.closing.Done()
	until := start.Add(max(ttl, req.Tombstone))
	for tries := 0; ; {
		err := c.try(req, tries, until)
		if err == nil {
			return
		}
		longest := maxPause
		if time.Since(start) > ttl {
			longest = latePause
		}
		pause := min(MinPause<<min(tries, 16), longest)
		pause = pause/2 + rand.N(pause)
		tries++
		if time.Now().Add(pause).After(until) || c.ctx.Err() != nil {
			c.GaveUp(req, tries, err)
			return
		}
		timer := time.NewTimer(max(pause, 1))
		select {
		case <-timer.C:
		case <-hurry:
			hurry = nil
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

var errOver = errors.New("the time for a clean-up was over before its next try")

// try sends the request of a job. Each job has one try, also late or after Close.
func (c *Cleaner) try(req driver.ReleaseRequest, tries int, until time.Time) error {
	c.trying <- struct{}{}
	defer func() { <-c.trying }()
	if tries > 0 && time.Now().After(until) {
		return errOver
	}
	ctx, cancel := context.WithTimeout(c.ctx, min(firstTry<<min(tries, 16), lastTry))
	defer cancel()
	return c.Release(ctx, req)
}
