package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// noticeGap is how long the notices of the nodes about one release may be apart.
const noticeGap = 2 * time.Millisecond

// Listen implements driver.Listener. It returns when a quorum of nodes notifies: the nodes of a
// release share a node with them.
func (q *quorum) Listen(ctx context.Context, name driver.Name, _ string) (<-chan driver.Wake, func(), error) {
	life, stop := context.WithCancel(q.life)
	l := &listener{
		q:       q,
		wakes:   make(chan driver.Wake, 1),
		notices: make(chan notice),
		seen:    make([]bool, len(q.nodes)),
		served:  make([]bool, len(q.nodes)),
	}
	for _, n := range q.nodes {
		q.listened.Go(func() { l.follow(life, n, name) })
	}
	for following := 0; following < q.size; {
		select {
		case one := <-l.notices:
			switch {
			case one.first:
				following++
			case one.err != nil && l.nodeFailed(one):
				stop()
				return nil, nil, l.failure()
			}
		case <-ctx.Done():
			stop()
			return nil, nil, fmt.Errorf("redlock: %w", ctx.Err())
		}
	}
	q.listened.Go(func() { l.run(life) })
	return l.wakes, stop, nil
}

// listener makes one wake of the notices of several nodes. After Listen, run alone uses it.
type listener struct {
	q       *quorum
	wakes   chan driver.Wake
	notices chan notice

	causes []string  // why nodes do not notify
	seen   []bool    // the nodes that have sent a notice since the last wake
	count  int       // their number
	fired  time.Time // the last wake
	served []bool    // the nodes whose notice of the same release has come
}

// notice is one of a node, or the first or the last word from it.
type notice struct {
	from  *node
	first bool  // notices will come
	err   error // no further notice will come
}

// follow listens on a node until life ends.
func (l *listener) follow(life context.Context, n *node, name driver.Name) {
	send := func(one notice) (sent bool) {
		select {
		case l.notices <- one:
			return true
		case <-life.Done():
			return false
		}
	}
	wakes, stop, err := n.Listen(life, name)
	if err != nil {
		send(notice{from: n, err: err})
		return
	}
	defer stop()
	for one := (notice{from: n, first: true}); send(one); one = (notice{from: n}) {
		select {
		case _, ok := <-wakes:
			if !ok {
				send(notice{from: n, err: errors.New("the notices have ended")})
				return
			}
		case <-life.Done():
			return
		}
	}
}

// run wakes the waiter at the notice of a quorum, or soon after the first. It ends with life, or closes
// wakes if a release may go unnoticed: then waiters poll.
func (l *listener) run(life context.Context) {
	var soon <-chan time.Time
	for {
		select {
		case one := <-l.notices:
			switch {
			case one.err != nil && l.nodeFailed(one):
				close(l.wakes)
				return
			case one.err != nil, one.first, !l.counts(one.from):
			case l.count == l.q.size:
				soon = nil
				l.wake(life)
			case l.count == 1:
				soon = time.After(noticeGap)
			}
		case <-soon:
			soon = nil
			l.wake(life)
		case <-life.Done():
			return
		}
	}
}

// nodeFailed notes that a node has stopped notifying. It reports whether too few nodes are left.
func (l *listener) nodeFailed(last notice) (tooFew bool) {
	l.causes = append(l.causes, fmt.Sprintf("%s: %v", last.from.Name(), last.err))
	return len(l.causes) > len(l.q.nodes)-l.q.size
}

// failure is the error of a listener that too few nodes notify.
func (l *listener) failure() error {
	return errors.New("redlock: too few nodes notify waiters: " + strings.Join(l.causes, "; "))
}

// counts reports whether a notice is of a release that has not woken the waiter, and the first of its
// node.
func (l *listener) counts(n *node) bool {
	switch {
	case l.seen[n.index]:
		return false
	case !l.served[n.index] && time.Since(l.fired) < noticeGap:
		l.served[n.index] = true
		return false
	}
	l.seen[n.index] = true
	l.count++
	return true
}

// wake replaces a wake that was not received. ⚑ No wake follows the end of life: run may see the end
// after a notice.
func (l *listener) wake(life context.Context) {
	l.count, l.fired = 0, time.Now()
	l.seen, l.served = l.served, l.seen
	clear(l.seen)
	if life.Err() != nil {
		return
	}
	select {
	case l.wakes <- driver.Wake{}:
	default:
	}
}
