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
	owed    []owedRelease
	sending bool // the goroutine runs
}

// owedRelease is a Release of an attempt.
type owedRelease struct {
	attempt *attempt
	req     driver.ReleaseRequest
	until   time.Time
}

// owe has a Release sent until the node answers.
func (q *quorum) owe(n *node, d owedRelease) {
	n.owedReleases.mu.Lock()
	defer n.owedReleases.mu.Unlock()
	n.owed = append(n.owed, d)
	if !n.sending {
		n.sending = true
		q.calls.Go(func() { q.sendOwed(n) })
	}
}

// next takes the oldest owed Release whose time is not over, and reports whether the list had one.
func (d *owedReleases) next() (first owedRelease, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for now := time.Now(); len(d.owed) > 0; {
		first, d.owed = d.owed[0], d.owed[1:]
		if now.Before(first.until) {
			return first, true
		}
	}
	d.owed, d.sending = nil, false
	return owedRelease{}, false
}

// again puts an owed Release at the end of the list: one that the node refuses does not keep the
// others.
func (d *owedReleases) again(last owedRelease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = append(d.owed, last)
}

// sendOwed sends the owed Releases to a node until the list is empty, or the driver ends.
func (q *quorum) sendOwed(n *node) {
	for pause := minResend; q.pause(pause); {
		d, ok := n.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(q.life, callLimit)
		reply, err := n.Driver.Release(ctx, d.req)
		cancel()
		if err == nil {
			d.attempt.released(n, d.req, reply, nil)
			pause = 1
			continue
		}
		n.again(d)
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
