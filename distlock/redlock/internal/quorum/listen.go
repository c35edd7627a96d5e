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
func (q *quorum) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	life, cancel := context.WithCancel(&withValues{q.life, ctx})
	l := &listener{
		q:      q,
		wakes:  make(chan driver.Wake, 1),
		ready:  make(chan struct{}),
		seen:   make([]bool, len(q.nodes)),
		served: make([]bool, len(q.nodes)),
	}
	stop := func() {
		cancel()
		l.end()
	}
	for _, n := range q.nodes {
		q.listened.Go(func() { l.follow(life, n, name, owner) })
	}
	select {
	case <-l.ready:
	case <-ctx.Done():
		stop()
		return nil, nil, fmt.Errorf("redlock: %w", ctx.Err())
	}
	if err := l.failure(); err != nil {
		stop()
		return nil, nil, err
	}
	return l.wakes, stop, nil
}

// listener makes one wake of the notices of several nodes.
type listener struct {
	q     *quorum
	wakes chan driver.Wake
	ready chan struct{} // closed when a quorum of nodes notifies, or cannot

	mu          sync.Mutex
	following   int      // nodes that notify
	causes      []string // the causes of those that do not
	unsupported int      // those of them that have no notices
	over        bool
	notices     int       // since the last wake
	seen        []bool    // the nodes that sent them
	fired       time.Time // the last wake
	served      []bool    // the nodes whose notice of the same release has come
	timer       *time.Timer
}

// follow listens on a node until ctx ends.
func (l *listener) follow(ctx context.Context, n *node, name driver.Name, owner string) {
	on, ok := driver.As[driver.Listener](n.Driver)
	if !ok {
		l.left(n, errors.ErrUnsupported)
		return
	}
	wakes, stop, err := on.Listen(ctx, name, owner)
	if err != nil {
		l.left(n, err)
		return
	}
	defer stop()
	l.joined()
	for {
		select {
		case _, ok := <-wakes:
			if !ok {
				l.left(n, errors.New("the notices have ended"))
				return
			}
			l.notice(n)
		case <-ctx.Done():
			return
		}
	}
}

func (l *listener) joined() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.following++; l.following == l.q.size {
		close(l.ready)
	}
}

// left notes that no notice of a node will come. Waiters poll if a release may go unnoticed.
func (l *listener) left(n *node, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.causes = append(l.causes, fmt.Sprintf("%s: %v", n.Name, err))
	if errors.Is(err, errors.ErrUnsupported) {
		l.unsupported++
	}
	switch {
	case len(l.causes) != len(l.q.nodes)-l.q.size+1:
	case l.following < l.q.size:
		close(l.ready)
	case !l.over:
		l.over = true
		close(l.wakes)
	}
}

// failure is the error of a listener that too few nodes notify, or nil.
func (l *listener) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.following >= l.q.size {
		return nil
	}
	e := &nodesError{text: "redlock: too few nodes notify waiters: " + strings.Join(l.causes, "; ")}
	if l.unsupported == len(l.causes) {
		e.kinds = []error{errors.ErrUnsupported}
	}
	return e
}

// notice wakes the waiter at the notice of a quorum, or soon after the first.
func (l *listener) notice(n *node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.seen[n.index]:
	case !l.served[n.index] && time.Since(l.fired) < noticeGap: // of the release that has woken the waiter
		l.served[n.index] = true
	default:
		l.seen[n.index] = true
		if l.notices++; l.notices == l.q.size {
			l.wakeLocked()
		} else if l.notices == 1 {
			l.timer = time.AfterFunc(noticeGap, l.wake)
		}
	}
}

func (l *listener) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notices > 0 {
		l.wakeLocked()
	}
}

// wakeLocked replaces a wake that was not received.
func (l *listener) wakeLocked() {
	l.timer.Stop()
	l.notices, l.fired = 0, time.Now()
	l.seen, l.served = l.served, l.seen
	clear(l.seen)
	if l.over {
		return
	}
	select {
	case l.wakes <- driver.Wake{}:
	default:
	}
}

// end stops the wakes.
func (l *listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
