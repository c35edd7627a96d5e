package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The pauses between two Releases that a node does not answer.
const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// debts are the Releases that a node owes an answer to. One goroutine sends them, one at a time, until
// they are answered.
type debts struct {
	mu     sync.Mutex
	owed   []debt
	paying bool // the goroutine runs
}

// debt is a Release of an attempt.
type debt struct {
	attempt *attempt
	req     driver.ReleaseRequest
	until   time.Time
}

// owe has a Release sent until the node answers.
func (q *quorum) owe(n *node, d debt) {
	n.debts.mu.Lock()
	defer n.debts.mu.Unlock()
	n.owed = append(n.owed, d)
	if !n.paying {
		n.paying = true
		q.calls.Go(func() { q.pay(n) })
	}
}

// next takes the oldest debt whose time is not over, and reports whether the list had one.
func (d *debts) next() (first debt, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for now := time.Now(); len(d.owed) > 0; {
		first, d.owed = d.owed[0], d.owed[1:]
		if now.Before(first.until) {
			return first, true
		}
	}
	d.owed, d.paying = nil, false
	return debt{}, false
}

// again puts a debt at the end of the list: one that the node refuses does not keep the others.
func (d *debts) again(last debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = append(d.owed, last)
}

// pay sends the owed Releases to a node until the list is empty, or the driver ends.
func (q *quorum) pay(n *node) {
	for pause := minPause; q.pause(pause); {
		d, ok := n.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(q.life, longest)
		reply, err := n.Driver.Release(ctx, d.req)
		cancel()
		if err == nil {
			d.attempt.released(n, d.req, reply, nil)
			pause = 1
			continue
		}
		n.again(d)
		pause = min(2*max(pause, minPause), maxPause)
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
	timer.Reset(min(d, minPause))
	select {
	case <-timer.C:
	case <-q.life.Done():
	}
	return q.life.Err() == nil
}
