package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

const (
	// notifyLimit bounds one notification. Its waiters then ask by themselves.
	notifyLimit = 5 * time.Second
	// closeLimit bounds the wait of Close for the last notifications.
	closeLimit = time.Second
)

// handoff is the channel of a waiter, and the message of hand_off_v1. The zero handoff means that no
// waiter was granted the name.
type handoff struct{ channel, message zeronull.Text }

// parseMessage reads a message. An owner alone has to ask. ⚑ Any role can send a
// message. It counts because it names an owner, which no other role knows.
func parseMessage(message string) (owner string, wake driver.Wake, err error) {
	words := strings.Split(message, ":")
	switch len(words) {
	case 1:
		return message, wake, nil
	case 6:
	default:
		return "", wake, errReply
	}
	var numbers [5]int64
	for i, word := range words[1:] {
		if numbers[i], err = strconv.ParseInt(word, 10, 64); err != nil || numbers[i] < 0 {
			return "", wake, errReply
		}
	}
	seq, ttl, waiters, fence, end := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	if fence < 1 || fence > end || end > driver.MaxFence || ttl > (365*24*time.Hour).Microseconds() {
		return "", wake, errReply
	}
	grant := driver.AcquireReply{Outcome: driver.Granted, Fence: fence, FenceEnd: end, Waiters: int(waiters)}
	return words[0], driver.Wake{Seq: seq, TTL: micros(ttl), Grant: grant}, nil
}

// wakes notifies waiters of handoffs. All waiters of a driver share one connection, which the first
// waiter opens. The connection listens, or polls behind a pooler. Messages can be lost, so no waiter
// relies on them.
type wakes struct {
	s       *service
	channel string
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the listener, and the sweep
	entered chan struct{}  // receives before a waiter enters the queue
	pollFor time.Duration

	sending sync.WaitGroup
	turn    sync.Mutex // locked while messages are sent

	mu         sync.Mutex
	waiting    map[string]*waiter // by owner
	asks       map[*func(owner string)]bool
	connection *connection // the present connection, or the one being made; nil before the first waiter
	polls      bool
	toSend     []handoff
}

// waiter is an owner that listens.
type waiter struct {
	name    driver.Name
	wake    chan driver.Wake
	entered bool // this driver has sent its request to enter the queue
	woken   bool // by a grant: an owner has one in its life, and the poll finds it again and again
}

// connection is one for wakes.
type connection struct {
	done chan struct{} // closed when wakes will come, or err is set
	err  error
}

func newWakes(s *service) *wakes {
	w := &wakes{s: s, channel: "belugalock_" + rand.Text(), waiting: make(map[string]*waiter),
		asks: make(map[*func(owner string)]bool), entered: make(chan struct{}, 1), pollFor: pollFor}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Listen implements driver.Listener.
func (s *service) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return s.wakes.listen(ctx, name, owner)
}

func (w *wakes) listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	wake := make(chan driver.Wake, 1)
	stop, err := w.connected(ctx, func() { w.waiting[owner] = &waiter{name: name, wake: wake} }, func() { delete(w.waiting, owner) })
	return wake, stop, err
}

// connected adds a listener, and waits until wakes will come. stop removes the listener, as an error does.
func (w *wakes) connected(ctx context.Context, add, remove func()) (stop func(), err error) {
	w.mu.Lock()
	if w.connection == nil {
		w.connection = &connection{done: make(chan struct{})}
		w.running.Go(w.run)
	}
	present := w.connection
	add()
	w.mu.Unlock()
	select {
	case <-present.done:
		err = present.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		remove()
	}
	if err != nil {
		stop()
	}
	return stop, err
}

var errClosed = errors.New("pglock: the driver is closed")

// enter notes that the request of an owner that listens enters the queue. It returns the channel for its
// wakes; empty: none.
func (w *wakes) enter(owner string) (channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	to, listens := w.waiting[owner]
	if !listens {
		return ""
	}
	to.entered = true
	if !w.polls {
		return w.channel
	}
	select {
	case w.entered <- struct{}{}:
	default:
	}
	return ""
}

// handoff notifies the waiter of a handoff whose transaction has ended.
func (w *wakes) handoff(to handoff) {
	switch string(to.channel) {
	case "":
	case w.channel:
		w.deliver(string(to.message))
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.toSend = append(w.toSend, to); len(w.toSend) == 1 {
			w.sending.Go(w.send)
		}
	}
}

// send sends the messages that have come until its turn, in one statement. ⚑ It ignores errors, such as a
// full queue of the server: the waiters ask by themselves.
func (w *wakes) send() {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.mu.Lock()
	messages := w.toSend
	w.toSend = nil
	w.mu.Unlock()
	var channels, texts []string
	for _, to := range messages {
		channels, texts = append(channels, string(to.channel)), append(texts, string(to.message))
	}
	ctx, cancel := context.WithTimeout(w.ctx, notifyLimit)
	defer cancel()
	_, _ = postgres.Call(ctx, w.s.calls, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil },
		"notify_v1", channels, texts)
}

// deliver wakes the waiter of a message.
func (w *wakes) deliver(message string) {
	if owner, wake, err := parseMessage(message); err == nil {
		w.wake(owner, wake)
	}
}

// wake wakes an owner, unless it has left. It replaces a wake that the owner has not read yet.
func (w *wakes) wake(owner string, wake driver.Wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to, ok := w.waiting[owner]; ok {
		to.woken = true
		replace(to.wake, wake)
	}
}

// replace sends a wake. wakes.mu is locked, so there is one sender at a time.
func replace(to chan driver.Wake, wake driver.Wake) {
	select {
	case <-to:
	default:
	}
	to <- wake
}

func (w *wakes) close() {
	limit := time.AfterFunc(closeLimit, w.cancel)
	w.sending.Wait()
	limit.Stop()
	w.cancel()
	w.running.Wait()
}
