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
	"sync"
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

var errNoReturn = errors.New("the driver's call did not return")

// Cleaner tries each job until the backend has answered, or until the lock has ended with its TTL
// and no request can still arrive, see [Tombstone]. A waiting job costs a timer and no goroutine.
type Cleaner struct {
	// Release sends a request.
	Release func(context.Context, driver.ReleaseRequest) error
	// Begin and End enclose the life of a job. A job for which Begin returns false is dropped.
	Begin func() bool
	End   func()
	// GaveUp reports a job that ends without an answer, and the error of its last try.
	GaveUp func(req driver.ReleaseRequest, tries int, err error)

	ctx  context.Context // of the tries; ends CloseGrace after Close
	stop context.CancelFunc

	mu      sync.Mutex
	closed  time.Time // zero while open
	waiting map[*job]*time.Timer
	due     []*job
	tries   int // under way
}

// job is one grant to end.
type job struct {
	req   driver.ReleaseRequest
	ends  time.Time // the lock has ended by then with its TTL
	until time.Time // no tries from then on
	tries int
	err   error // of the last try
}

// New returns a Cleaner whose functions are to be set before its use.
func New() *Cleaner {
	c := &Cleaner{waiting: make(map[*job]*time.Timer)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Context ends CloseGrace after Close.
func (c *Cleaner) Context() context.Context { return c.ctx }

// Tombstone is how long the backend refuses a cancelled owner. The clean-up tries for as long.
func Tombstone(ttl time.Duration) time.Duration { return max(ttl, minTombstone) }

// Cancel ends, after a pause, the present or future grant of req. The backend keeps a tombstone of
// the owner, so it refuses a copy of req that arrives later.
func (c *Cleaner) Cancel(req driver.AcquireRequest, pause time.Duration) {
	c.Add(driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: Tombstone(req.TTL)}, req.TTL, pause)
}

// Add sends req after a pause, and again until it succeeds, or until ttl and the life of its
// tombstone have passed.
func (c *Cleaner) Add(req driver.ReleaseRequest, ttl, pause time.Duration) {
	if !c.Begin() {
		return
	}
	due := time.Now().Add(pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitLocked(&job{req: req, ends: due.Add(ttl), until: due.Add(max(ttl, req.Tombstone))}, pause)
}

// waitLocked makes a job due after a pause.
func (c *Cleaner) waitLocked(j *job, pause time.Duration) {
	if pause <= 0 {
		c.dueLocked(j)
		return
	}
	c.waiting[j] = time.AfterFunc(max(pause, 1), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[j] != nil { // else Close has ended the pause
			c.dueLocked(j)
		}
	})
}

func (c *Cleaner) dueLocked(j *job) {
	delete(c.waiting, j)
	c.due = append(c.due, j)
	if c.tries < most {
		c.tries++
		go c.work()
	}
}

// work tries the jobs that are due, and ends when none is left. Each job keeps the owner of the
// Cleaner open, see Begin.
func (c *Cleaner) work() {
	var j *job
	defer func() {
		if j != nil { // the driver has ended the goroutine
			j.err = errNoReturn
			c.settle(j, false)
			go c.work()
		}
	}()
	for j = c.next(); j != nil; j = c.next() {
		c.settle(j, c.try(j))
	}
}

// next takes out the first job that is due. It returns nil if none is left, and the goroutine has to end.
func (c *Cleaner) next() *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.due) == 0 {
		c.tries--
		return nil
	}
	j := c.due[0]
	c.due = c.due[1:]
	return j
}

// settle lets a job wait for another try, unless it has ended or no time is left for it.
func (c *Cleaner) settle(j *job, ended bool) {
	if !ended && c.retry(j) {
		return
	}
	if j.err != nil {
		c.GaveUp(j.req, j.tries, j.err)
	}
	c.End()
}

// try sends the request of a job, and reports whether the job has ended. Each job has one try.
func (c *Cleaner) try(j *job) bool {
	if j.tries > 0 && !time.Now().Before(j.until) {
		return true
	}
	ctx, cancel := context.WithTimeout(c.ctx, min(firstTry<<min(j.tries, 16), lastTry))
	defer cancel()
	j.err = c.Release(ctx, j.req)
	return j.err == nil
}

// retry lets a job that failed wait for another try, unless no time is left for it.
func (c *Cleaner) retry(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	longest := maxPause
	if now.After(j.ends) {
		longest = latePause
	}
	pause := min(MinPause<<min(j.tries, 16), longest)
	pause = pause/2 + rand.N(pause)
	j.tries++
	due := now.Add(pause)
	if !due.Before(j.until) || !c.closed.IsZero() && !due.Before(c.closed.Add(CloseGrace)) {
		return false
	}
	c.waitLocked(j, pause)
	return true
}

// Close starts the next try of each job that has had one, and ends all jobs after [CloseGrace]. A job
// without a try keeps its pause: the work under a lost lease keeps its margin. A second Close does
// nothing.
func (c *Cleaner) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed.IsZero() {
		return
	}
	c.closed = time.Now()
	time.AfterFunc(CloseGrace, c.stop)
	for j, timer := range c.waiting {
		if j.tries > 0 {
			timer.Stop()
			c.dueLocked(j)
		}
	}
}
