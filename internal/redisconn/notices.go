package redisconn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// listenLimit bounds the wait of a Listen for the confirmation of its subscription.
	listenLimit = time.Second
	// unconfirmedFor is how long a Listen fails at once after such a wait, until the server
	// confirms.
	unconfirmedFor = 10 * time.Second
	// refusedFor is how long a Listen fails at once after the server has refused the subscription.
	refusedFor = time.Minute
)

// Notices sends the messages of Redis to the listeners of a driver. All listeners share one
// subscription. The first listener begins it, and channels stay subscribed until Close.
//
// Messages can be lost, so no listener relies on them. After every interruption all listeners get
// the zero wake, and ask Redis.
type Notices[W any] struct {
	redis      *Transport
	explain    func(error) error
	parse      func(message string) (to string, wake W, err error)
	refusedFor time.Duration
	running    sync.WaitGroup // the goroutines of all subscriptions

	mu      sync.Mutex
	waiting map[string][]chan W // by addressee
	current *subscription[W]    // nil before the first listener, and after a refusal
	refused error               // the last refusal or timeout
	until   time.Time           // its end
	closed  bool
}

// NewNotices makes the notices of a driver. explain makes an error of Redis one of the driver. parse reads a
// message: the addressee, and the wake for its listeners. A message with an error is dropped.
func NewNotices[W any](
	over *Transport, explain func(error) error, parse func(message string) (string, W, error),
) *Notices[W] {
	return &Notices[W]{
		redis: over, explain: explain, parse: parse, refusedFor: refusedFor, waiting: make(map[string][]chan W),
	}
}

// Listen sends the wakes for an addressee, which come on a channel of Redis, of its driver.
func (n *Notices[W]) Listen(ctx context.Context, on, addressee string) (<-chan W, func(), error) {
	n.mu.Lock()
	if n.closed || time.Now().Before(n.until) {
		defer n.mu.Unlock()
		return nil, nil, cmp.Or(n.refused, redis.ErrClosed)
	}
	if n.current == nil {
		n.current = newSubscription(n)
	}
	ready := n.current.to(on)
	wake := make(chan W, 1)
	n.waiting[addressee] = append(n.waiting[addressee], wake)
	n.mu.Unlock()
	stop := func() { n.leave(addressee, wake) }

	timer := time.NewTimer(listenLimit)
	defer timer.Stop()
	var err error
	select {
	case <-ready:
		n.mu.Lock()
		if time.Now().Before(n.until) {
			err = n.refused
		}
		n.mu.Unlock()
	case <-timer.C:
		err = n.explain(fmt.Errorf("the subscription was not confirmed within %s", listenLimit))
		n.mu.Lock()
		n.refused, n.until = err, time.Now().Add(unconfirmedFor)
		n.mu.Unlock()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return wake, stop, nil
}

// leave ends a listener of an addressee.
func (n *Notices[W]) leave(addressee string, wake chan W) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := slices.DeleteFunc(n.waiting[addressee], func(other chan W) bool { return other == wake })
	if n.waiting[addressee] = left; len(left) == 0 {
		delete(n.waiting, addressee)
	}
}

// deliver sends a message to the listeners of its addressee.
func (n *Notices[W]) deliver(message string) {
	addressee, wake, err := n.parse(message)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, to := range n.waiting[addressee] {
		notify(to, wake)
	}
}

// all makes all listeners ask Redis, because messages may be lost.
func (n *Notices[W]) all() {
	n.mu.Lock()
	defer n.mu.Unlock()
	var zero W
	for _, listeners := range n.waiting {
		for _, to := range listeners {
			notify(to, zero)
		}
	}
}

// notify replaces a wake that the listener has not read yet. There is one sender at a time.
func notify[W any](to chan W, wake W) {
	select {
	case <-to:
	default:
	}
	to <- wake
}

// refuse ends a subscription that the server does not allow. Waiters poll. After refusedFor the
// next Listen subscribes again.
func (n *Notices[W]) refuse(s *subscription[W], err error) {
	n.mu.Lock()
	if n.current == s {
		n.current, n.until = nil, time.Now().Add(n.refusedFor)
		n.refused = n.explain(err)
		for addressee, listeners := range n.waiting {
			for _, to := range listeners {
				close(to)
			}
			delete(n.waiting, addressee)
		}
	}
	n.mu.Unlock()
	s.end()
}

// confirmed ends the last refusal or timeout.
func (n *Notices[W]) confirmed(s *subscription[W]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current == s {
		n.refused, n.until = nil, time.Time{}
	}
}

// Close closes the subscription, and waits for its goroutines and for those of refused ones.
func (n *Notices[W]) Close() {
	n.mu.Lock()
	n.closed = true
	s := n.current
	n.mu.Unlock()
	if s != nil {
		s.end()
	}
	n.running.Wait()
}
