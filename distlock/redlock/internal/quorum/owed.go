package quorum

import (
	"context"
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
	mu      sync.Mutex
	list    []owedRelease
	sending bool // the goroutine runs
}

// owedRelease is a Release of an attempt.
type owedRelease struct {
	attempt *attempt
	req     driver.ReleaseRequest
	until   time.Time
}

// owe has a Release sent until the node answers.
func (q *quorum) owe(n *node, r owedRelease) {
	n.owed.mu.Lock()
	defer n.owed.mu.Unlock()
	n.owed.list = append(n.owed.list, r)
	if !n.owed.sending {
		n.owed.sending = true
		q.calls.Go(func() { q.sendOwed(n) })
	}
}

// next takes the oldest owed Release whose time is not over, and reports whether the list had one.
func (o *owedReleases) next() (first owedRelease, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for now := time.Now(); len(o.list) > 0; {
		first, o.list = o.list[0], o.list[1:]
		if now.Before(first.until) {
			return first, true
		}
	}
	o.list, o.sending = nil, false
	return owedRelease{}, false
}

// again puts an owed Release at the end of the list: one that the node refuses does not keep the
// others.
func (o *owedReleases) again(last owedRelease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, last)
}

// sendOwed sends the owed Releases to a node until the list is empty, or the driver ends.
func (q *quorum) sendOwed(n *node) {
	for pause := minResend; q.pause(pause); {
		r, ok := n.owed.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(q.life, callLimit)
		reply, err := n.Driver.Release(ctx, r.req)
		cancel()
		if err == nil {
			r.attempt.released(n, r.req, reply, nil)
			pause = 1
			continue
		}
		n.owed.again(r)
		pause = min(2*max(pause, minResend), maxResend)
	}
}

// pause waits, for less time while the driver closes. It reports false if the driver has ended.
func (q *quorum) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return q.life.Err() == nil
	case <-q.life.Done():
		return false
	case <-q.closing:
	}
	timer.Reset(min(d, minResend))
	select {
	case <-timer.C:
	case <-q.life.Done():
	}
	return q.life.Err() == nil
}
