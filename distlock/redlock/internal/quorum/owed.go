package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The pauses between two Releases that a node does not answer.
const (
	minResend = 10 * time.Millisecond
	maxResend = time.Second
)

// owedReleases are the Releases that a node has not answered. One goroutine sends them, one at a
// time, until they are answered.
type owedReleases struct {
	mu   sync.Mutex
	list []owedRelease // the goroutine runs unless it is empty
}

// owedRelease is a Release of an attempt.
type owedRelease struct {
	attempt *attempt
	req     driver.ReleaseRequest
	quiet   bool
	until   time.Time
}

// owe has a Release sent until the node answers.
func (q *quorum) owe(n *node, r owedRelease) {
	n.owed.mu.Lock()
	defer n.owed.mu.Unlock()
	n.owed.list = append(n.owed.list, r)
	if len(n.owed.list) == 1 {
		q.calls.Go(func() { q.sendOwed(n) })
	}
}

// first removes the Releases whose time is over, and returns the first one of the others.
func (o *owedReleases) first() (r owedRelease, ok bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, func(r owedRelease) bool { return now.After(r.until) })
	if len(o.list) == 0 {
		return r, false
	}
	return o.list[0], true
}

// tried takes the first one off the list, or puts it at the end: one that the node refuses does not
// keep the others. It reports whether the list has one.
func (o *owedReleases) tried(again bool) (more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if again {
		o.list = append(o.list, o.list[0])
	}
	o.list = o.list[1:]
	return len(o.list) > 0
}

// sendOwed sends the owed Releases to a node until the list is empty, or the driver ends.
func (q *quorum) sendOwed(n *node) {
	for pause, more := minResend, true; more && q.pause(pause); {
		r, ok := n.owed.first()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(q.life, callLimit)
		_, err := r.attempt.sendRelease(ctx, n, r.req, r.quiet)
		cancel()
		if more = n.owed.tried(err != nil); err == nil {
			pause = 1
		} else {
			pause = min(2*max(pause, minResend), maxResend)
		}
	}
}

// pause waits. It reports false if the driver has ended.
func (q *quorum) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.life.Done():
	}
	return q.life.Err() == nil
}
