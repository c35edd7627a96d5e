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
	"slices"
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

// Cleaner tries each job until the backend has answered, or until the lock has ended with its TTL
// and no request can still arrive, see [Tombstone]. The jobs wait in one queue, and one goroutine begins
// their tries.
type Cleaner struct {
	// Release sends a request.
	Release func(context.Context, driver.ReleaseRequest) error
	// Go runs f, which does all jobs, in a goroutine. After the end of closing it may refuse.
	Go func(f func())
	// GaveUp reports a job that ends without an answer, and why.
	GaveUp func(req driver.ReleaseRequest, tries int, err error)

	ctx     context.Context // of the tries; ends CloseGrace after closing
	closing context.Context
	trying  chan struct{} // holds a token for each try under way
	changed chan struct{} // holds a token if the queue has changed

	mu      sync.Mutex
	waiting []*job          // by the time of their next tries
	left    int             // jobs that wait, or have a try under way
	running bool            // run does the jobs
	hurry   <-chan struct{} // ends the pauses between two tries: the end of closing, then that of ctx
}

// job is one lock to release.
type job struct {
	req         driver.ReleaseRequest
	ttl         time.Duration
	start, next time.Time // the first try, and the next
	until       time.Time
	tries       int
}

// New returns a Cleaner whose functions are to be set before its use. The end of closing starts the next
// try of each job that has had one, and ends all jobs after [CloseGrace].
func New(closing context.Context) *Cleaner {
	c := &Cleaner{closing: closing, trying: make(chan struct{}, most), changed: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(context.WithoutCancel(closing))
	c.ctx, c.hurry = ctx, closing.Done()
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
	start := time.Now().Add(pause)
	j := &job{req: req, ttl: ttl, start: start, next: start, until: start.Add(max(ttl, req.Tombstone))}
	c.mu.Lock()
	c.left++
	c.waitLocked(j)
	// ⚑ The last job may have ended, and run may not have seen that yet. One notification wakes one run.
	starts := !c.running
	c.running = true
	c.mu.Unlock()
	if starts {
		c.Go(c.run)
	}
}

// waitLocked puts a job into the queue, behind those with the same time.
func (c *Cleaner) waitLocked(j *job) {
	i, _ := slices.BinarySearchFunc(c.waiting, j.next, func(j *job, next time.Time) int {
		if j.next.After(next) {
			return 1
		}
		return -1
	})
	c.waiting = slices.Insert(c.waiting, i, j)
	c.notifyLocked()
}

func (c *Cleaner) notifyLocked() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run begins each try when its time has come, until no job is left.
func (c *Cleaner) run() {
	for j, pause, left := c.first(); left; j, pause, left = c.first() {
		if j != nil {
			c.trying <- struct{}{}
			go func() {
				defer func() { <-c.trying }()
				c.try(j)
			}()
			continue
		}
		timer := time.NewTimer(max(pause, 1))
		select {
		case <-timer.C:
		case <-c.changed:
		case <-c.hurry:
		}
		timer.Stop()
	}
}

// first takes the first job out of the queue if its time has come. Otherwise pause is the time until then.
func (c *Cleaner) first() (j *job, pause time.Duration, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.hurry:
		for _, j := range c.waiting {
			j.next = j.start // ⚑ without a try, later: the work under a lost lease keeps its margin
		}
		slices.SortStableFunc(c.waiting, func(a, b *job) int { return a.next.Compare(b.next) })
		if c.hurry = nil; c.ctx.Err() == nil {
			c.hurry = c.ctx.Done()
		}
	default:
	}
	if len(c.waiting) == 0 {
		c.running = c.left > 0
		return nil, time.Hour, c.running
	}
	if pause = time.Until(c.waiting[0].next); pause <= 0 {
		j, c.waiting[0] = c.waiting[0], nil
		c.waiting = c.waiting[1:]
	}
	return j, pause, true
}

var errOver = errors.New("the time for a clean-up was over before its next try")

// try makes one try of a job.
func (c *Cleaner) try(j *job) {
	err := errOver
	defer func() { c.tried(j, err) }()
	if time.Now().After(j.until) {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, min(firstTry<<min(j.tries, 16), lastTry))
	defer cancel()
	err = c.Release(ctx, j.req)
}

// tried puts a job back into the queue after a failed try, unless its time is over.
func (c *Cleaner) tried(j *job, err error) {
	now, longest := time.Now(), maxPause
	switch {
	case c.closing.Err() != nil:
		longest = CloseGrace / 4
	case now.Sub(j.start) > j.ttl:
		longest = latePause
	}
	pause := min(MinPause<<min(j.tries, 16), longest)
	pause = pause/2 + rand.N(pause)
	j.tries++
	again := err != nil && !now.Add(pause).After(j.until) && c.ctx.Err() == nil
	if err != nil && !again {
		c.GaveUp(j.req, j.tries, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if again {
		j.next = now.Add(pause)
		c.waitLocked(j)
		return
	}
	c.left--
	c.notifyLocked()
}
