package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
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

// wakes notifies waiters of handoffs. All waiters of a driver share one subscription, to a channel
// of the driver in each namespace. The first waiter begins it.
//
// Messages can be lost, so no waiter relies on them. After every interruption all waiters ask
// Redis.
type wakes struct {
	redis      *redisconn.Transport
	id         string
	refusedFor time.Duration

	mu      sync.Mutex
	waiting map[string]chan driver.Wake // by owner
	current *subscription               // nil before the first waiter, and after a refusal
	refused error                       // the last refusal or timeout
	until   time.Time                   // its end
	closed  bool
}

func newWakes(over *redisconn.Transport) *wakes {
	return &wakes{redis: over, id: rand.Text(), refusedFor: refusedFor, waiting: make(map[string]chan driver.Wake)}
}

// Listen implements driver.Listener.
func (s *service) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return s.wakes.listen(ctx, name.Namespace+":wake:"+s.wakes.id, owner)
}

func (w *wakes) listen(ctx context.Context, on, owner string) (<-chan driver.Wake, func(), error) {
	w.mu.Lock()
	if w.closed || time.Now().Before(w.until) {
		defer w.mu.Unlock()
		return nil, nil, cmp.Or(w.refused, redis.ErrClosed)
	}
	if w.current == nil {
		w.current = newSubscription(w)
	}
	ready := w.current.to(on)
	wake := make(chan driver.Wake, 1)
	w.waiting[owner] = wake
	w.mu.Unlock()
	stop := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, owner)
	}

	timer := time.NewTimer(listenLimit)
	defer timer.Stop()
	var err error
	select {
	case <-ready:
		w.mu.Lock()
		if time.Now().Before(w.until) {
			err = w.refused
		}
		w.mu.Unlock()
	case <-timer.C:
		err = fmt.Errorf("redislock: the subscription was not confirmed within %s", listenLimit)
		w.mu.Lock()
		w.refused, w.until = err, time.Now().Add(unconfirmedFor)
		w.mu.Unlock()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return wake, stop, nil
}

// deliver sends a message to its waiter, unless the waiter has left.
func (w *wakes) deliver(message string) {
	owner, wake, err := parseWake(message)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if to := w.waiting[owner]; to != nil {
		send(to, wake)
	}
}

// all makes all waiters ask Redis, because messages may be lost.
func (w *wakes) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.waiting {
		send(to, driver.Wake{})
	}
}

// send replaces a wake that the waiter has not read yet. There is one sender at a time.
func send(to chan driver.Wake, wake driver.Wake) {
	select {
	case <-to:
	default:
	}
	to <- wake
}

// refuse ends a subscription that the server does not allow. Waiters poll. After refusedFor the
// next Listen subscribes again.
func (w *wakes) refuse(s *subscription, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != s {
		return
	}
	w.current, w.until = nil, time.Now().Add(w.refusedFor)
	w.refused = redisconn.Explain(w.redis.Client(), "redislock", err)
	for owner, to := range w.waiting {
		close(to)
		delete(w.waiting, owner)
	}
	s.end()
}

// confirmed ends the last refusal or timeout.
func (w *wakes) confirmed(s *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == s {
		w.refused, w.until = nil, time.Time{}
	}
}

func (w *wakes) close() {
	w.mu.Lock()
	w.closed = true
	s := w.current
	w.mu.Unlock()
	if s != nil {
		s.end()
		s.running.Wait()
	}
}

// parseWake reads a message of lua/slow.lua:
// "<owner>:<seq>:<ttl, ms>:<waiters>:<token>:<last token of the block>".
func parseWake(message string) (owner string, wake driver.Wake, err error) {
	words := strings.Split(message, ":")
	if len(words) != 6 {
		return "", wake, errReply
	}
	parts := make([]any, 5)
	for i, word := range words[1:] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return "", wake, errReply
		}
		parts[i] = n
	}
	r := &scriptReply{parts: parts}
	wake.Seq = r.number()
	ttl := r.number()
	wake.Grant = driver.AcquireReply{Outcome: driver.Granted, Waiters: int(r.number())}
	wake.Grant.Fence, wake.Grant.FenceEnd = r.block()
	if r.err != nil || ttl > (365*24*time.Hour).Milliseconds() {
		return "", driver.Wake{}, errReply
	}
	wake.TTL = time.Duration(ttl) * time.Millisecond
	return words[0], wake, nil
}
