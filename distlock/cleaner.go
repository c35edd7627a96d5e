package distlock

import (
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// cleanups bounds the clean-ups that are under way at a time: enough to undo some hundred within a second at a distance
	// of 50 ms, and to get past a few that hang.
	cleanups = 16
	// firstCleanup is how long the first try may take; each further one has twice as long, up to lastCleanup.
	firstCleanup = 250 * time.Millisecond
	lastCleanup  = time.Second
	// cleanupMin and cleanupMax bound the pause before another try.
	cleanupMin = 10 * time.Millisecond
	cleanupMax = time.Second
	// cleanupLate bounds the pause after the lock has ended with its TTL. An outage may leave many
	// clean-ups behind.
	cleanupLate = 3 * time.Second
	// closeGrace is how long a closed Locker goes on with clean-ups.
	closeGrace = time.Second
	// minVoid is the shortest time for which the backend refuses a cancelled owner. A lost request may
	// arrive after its client has given up: Linux resends the data of a closed connection for 102 s
	// (tcp_orphan_retries 8).
	minVoid = 2 * time.Minute
)

// cleaner ends, in the background, what nobody may hold any more: what an acquire with unknown outcome may have taken,
// what a lease that was lost may have left, what a release could not remove. It tries until the lock service has
// answered, or until the lock has ended with its TTL and no request can still arrive, see voidFor.
//
// It has no goroutine of its own: each try has one, a few tries run at a time, and a timer starts the next.
type cleaner struct {
	locker *Locker
	trying context.Context // ends a while after the Locker was closed
	stop   context.CancelFunc

	mu     sync.Mutex
	jobs   cleanupHeap
	active int         // tries under way
	timer  *time.Timer // runs pump when the first job is due; nil before there was one
}

// cleanup is one grant to be ended.
type cleanup struct {
	req   driver.ReleaseRequest
	due   time.Time
	until time.Time // no tries from here on
	ends  time.Time // the lock has ended by then with its TTL, and late requests alone are left to refuse
	tries int
}

// voidFor is how long the backend refuses a cancelled owner. The clean-up tries for as long.
func voidFor(ttl time.Duration) time.Duration { return max(ttl, minVoid) }

// void ends, after a pause, whatever req was granted or will be: the service remembers the owner as cancelled, so a copy
// of the request that arrives late finds itself refused.
func (c *cleaner) void(req driver.AcquireRequest, pause time.Duration) {
	c.add(driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, VoidFor: voidFor(req.TTL)}, req.TTL, pause)
}

// add has req sent, after a pause, until it succeeds, or ttl and the time of its tombstone have passed.
// Each failed call adds at most one job. Close waits for the jobs.
func (c *cleaner) add(req driver.ReleaseRequest, ttl, pause time.Duration) {
	if !c.locker.begin() {
		return
	}
	now := time.Now()
	c.mu.Lock()
	due := now.Add(pause)
	heap.Push(&c.jobs, &cleanup{req: req, due: due, until: due.Add(max(ttl, req.VoidFor)), ends: due.Add(ttl)})
	c.mu.Unlock()
	c.pump()
}

// pump starts the tries that are due. It is called when that may have changed: after a job has come or come back, when
// the timer fires, and when the Locker closes.
func (c *cleaner) pump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.jobs) > 0 && c.active < cleanups {
		job := c.jobs[0]
		// A closed Locker still tries each job once.
		if (job.tries > 0 || c.locker.closing.Err() == nil) && !time.Now().Before(job.until) {
			heap.Pop(&c.jobs)
			c.locker.end()
			continue
		}
		if pause := time.Until(job.due); pause > 0 {
			if c.timer == nil {
				c.timer = time.AfterFunc(positive(pause), c.pump)
			} else {
				c.timer.Reset(positive(pause))
			}
			return
		}
		heap.Pop(&c.jobs)
		c.active++
		go c.try(job)
	}
}

func (c *cleaner) try(job *cleanup) {
	l := c.locker
	ctx, cancel := context.WithTimeout(c.trying, min(firstCleanup<<min(job.tries, 16), lastCleanup))
	_, err := l.driver.Release(ctx, job.req)
	cancel()
	again := err != nil && c.again(job)

	c.mu.Lock()
	c.active--
	if again {
		heap.Push(&c.jobs, job)
	}
	c.mu.Unlock()
	c.pump()
	if again {
		return
	}
	if err != nil {
		l.log(slog.LevelDebug, "distlock: the clean-up of a lock without a holder failed; the lock, if the backend still has it, ends with its TTL",
			job.req.Name.Key, "tries", job.tries, "error", err)
	}
	l.end()
}

// hurry makes the jobs that wait for another try have it now, and ends all of them soon. The first try of those that have
// had none is left where it is: who was told of a loss a moment ago keeps the time that was promised.
func (c *cleaner) hurry() {
	c.mu.Lock()
	now := time.Now()
	for _, job := range c.jobs {
		if job.tries > 0 {
			job.due = now
		}
		job.until = earlier(job.until, now.Add(closeGrace))
	}
	heap.Init(&c.jobs)
	c.mu.Unlock()
	time.AfterFunc(closeGrace, c.stop)
	c.pump()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// again gives a job that failed its next turn, unless there is no time left for it.
func (c *cleaner) again(job *cleanup) bool {
	if c.trying.Err() != nil {
		return false
	}
	now := time.Now()
	if c.locker.closing.Err() != nil {
		job.until = earlier(job.until, now.Add(closeGrace))
	}
	most := cleanupMax
	if now.After(job.ends) {
		most = cleanupLate
	}
	pause := min(cleanupMin<<min(job.tries, 16), most)
	job.tries++
	job.due = now.Add(pause/2 + rand.N(pause))
	return job.due.Before(job.until)
}

// cleanupHeap is a heap of jobs by due time.
type cleanupHeap []*cleanup

func (h cleanupHeap) Len() int           { return len(h) }
func (h cleanupHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h cleanupHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *cleanupHeap) Push(x any)        { *h = append(*h, x.(*cleanup)) }
func (h *cleanupHeap) Pop() any {
	old := *h
	job := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return job
}
