package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// noticeGap is how long the notices of the nodes about one release may be apart.
const noticeGap = 2 * time.Millisecond

// Listen implements driver.Listener. It returns when a quorum of nodes notifies: the nodes of a
// release share a node with them.
func (q *quorum) Listen(ctx context.Context, name driver.Name, _ string) (<-chan driver.Wake, func(), error) {
	life, stop := context.WithCancel(q.life)
	l := &listener{q: q, life: life, wakes: make(chan driver.Wake, 1), begun: make(chan error, len(q.nodes))}
	for _, n := range q.nodes {
		q.listened.Go(func() { l.follow(n, name) })
	}
	var causes []string
	for following := 0; following < q.size; {
		select {
		case err := <-l.begun:
			if err == nil {
				following++
			} else if causes = append(causes, err.Error()); l.tooFew(len(causes)) {
				stop()
				return nil, nil, errors.New("redlock: too few nodes notify waiters: " + strings.Join(causes, "; "))
			}
		case <-ctx.Done():
			stop()
			return nil, nil, fmt.Errorf("redlock: %w", ctx.Err())
		}
	}
	return l.wakes, stop, nil
}

// listener makes one wake of the notices of several nodes.
type listener struct {
	q     *quorum
	life  context.Context
	wakes chan driver.Wake
	begun chan error // a result for each node

	mu      sync.Mutex
	deaf    int       // nodes that do not notify
	notices int       // since the last wake
	woken   time.Time // the last wake
	late    int       // the notices of its release that may still come
}

// tooFew reports whether a release may go unnoticed.
func (l *listener) tooFew(deaf int) bool { return deaf > len(l.q.nodes)-l.q.size }

// follow listens on a node until life ends.
func (l *listener) follow(n *node, name driver.Name) {
	defer l.end()
	notices, stop, err := n.Listen(l.life, name)
	if err != nil {
		l.begun <- fmt.Errorf("%s: %w", n.Name(), err)
		return
	}
	defer stop()
	l.begun <- nil
	for {
		select {
		case _, ok := <-notices:
			if !ok {
				return
			}
			l.notice()
		case <-l.life.Done():
			return
		}
	}
}

// end notes that a node notifies no more. It closes wakes if a release may go unnoticed: then waiters
// poll.
func (l *listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.tooFew(l.deaf)
	if l.deaf++; l.life.Err() == nil && l.tooFew(l.deaf) && !before {
		close(l.wakes)
	}
}

// notice wakes the waiter at the notice of a quorum, or soon after the first. A late notice belongs to
// the release that has woken it.
func (l *listener) notice() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late > 0 && time.Since(l.woken) < noticeGap {
		l.late--
		return
	}
	switch l.notices++; l.notices {
	case 1:
		first := l.woken
		time.AfterFunc(noticeGap, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.woken.Equal(first) {
				l.wake()
			}
		})
	case l.q.size:
		l.wake()
		l.late = len(l.q.nodes) - l.q.size
	}
}

// wake replaces a wake that was not received. ⚑ No wake follows the end of life.
func (l *listener) wake() {
	l.notices, l.woken, l.late = 0, time.Now(), 0
	if l.life.Err() != nil || l.tooFew(l.deaf) {
		return
	}
	select {
	case l.wakes <- driver.Wake{}:
	default:
	}
}
