package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
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
	// listenLimit is how long a waiter who is among the first to listen waits for the subscription.
	listenLimit = time.Second
	// unconfirmedFor is how long others do not wait for it again, unless it is confirmed meanwhile.
	unconfirmedFor = 10 * time.Second
	// refusedFor is how long to take the server at its word that something is not allowed.
	refusedFor = time.Minute
)

// wakes tells those who stand in line that the lock was handed to them. All waiters of a driver
// share one subscription, to a channel of the driver's own in each namespace, begun when the first
// of them lines up.
//
// It may miss a message: none of those who wait rests on it. After every interruption all are told
// to ask.
type wakes struct {
	client     redis.UniversalClient
	id         string
	refusedFor time.Duration

	mu      sync.Mutex
	waiting map[string]chan driver.Wake // by owner
	current *subscription               // nil before the first waiter, and after a refusal
	refused error                       // why there is none
	until   time.Time                   // when to try again
	closed  bool
}

func newWakes(client redis.UniversalClient) *wakes {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &wakes{client: client, id: hex.EncodeToString(id[:]), refusedFor: refusedFor, waiting: make(map[string]chan driver.Wake)}
}

// Listen implements driver.Listener.
func (s *service) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return s.wakes.listen(ctx, name.Namespace+":wake:"+s.wakes.id, owner)
}

func (w *wakes) listen(ctx context.Context, on, owner string) (<-chan driver.Wake, func(), error) {
	w.mu.Lock()
	if w.closed || time.Now().Before(w.until) { // as it was found a moment ago
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

// deliver passes a message on to the waiter it is for, if that still waits.
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

// all tells everybody to ask: messages may have been missed.
func (w *wakes) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.waiting {
		send(to, driver.Wake{})
	}
}

// send replaces a wake that has not been taken yet. There is one sender at a time.
func send(to chan driver.Wake, wake driver.Wake) {
	select {
	case <-to:
	default:
	}
	to <- wake
}

// refuse ends a subscription that the server does not allow. Waiters poll from now on, and after a
// while try again.
func (w *wakes) refuse(s *subscription, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != s {
		return
	}
	w.current, w.refused, w.until = nil, redisconn.Explain(w.client, "redislock", err), time.Now().Add(w.refusedFor)
	for owner, to := range w.waiting {
		close(to)
		delete(w.waiting, owner)
	}
	s.end()
}

// confirmed notes that a subscription stands, whatever was found before.
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

// parseWake reads a message of lua/slow.lua: "<owner>:<seq>:<ttl, ms>:<waiters>:<token>:<last token
// of the block>".
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
