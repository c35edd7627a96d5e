package redisconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// confirmLimit is how long after the begin of a subscription a Listen waits for its confirmation. Later
	// calls fail at once, until the server confirms.
	confirmLimit = time.Second
	// refusedFor is how long a Listen fails at once after the server has refused the subscription.
	refusedFor = time.Minute
	// silence is how long the connection may be silent before it is checked with a ping.
	silence = 10 * time.Second
	// reconnectPause is the time between two attempts to subscribe.
	reconnectPause = 100 * time.Millisecond
)

// Wakes sends the messages of Redis to the listeners of a driver. All listeners share one connection. The
// first one begins it, and channels stay subscribed until the server refuses one, or Close.
//
// Messages can be lost, so no listener relies on them. After every interruption all listeners get
// the zero wake, and ask Redis.
type Wakes[W any] struct {
	transport *Transport
	explain   func(error) error
	parse     func(message string) (to string, wake W, err error)
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu        sync.Mutex
	listeners map[string][]chan W // by addressee
	channels  map[string]*channel // by name; a goroutine subscribes to them, unless there are none
	pubsub    *redis.PubSub       // its connection
	refused   error               // the last refusal
	retry     time.Time           // when a Listen may begin again after it
}

// channel is a channel of Redis.
type channel struct {
	begun   time.Time
	settled chan struct{} // closed when the server has confirmed or refused it
}

func (c *channel) isSettled() bool {
	select {
	case <-c.settled:
		return true
	default:
		return false
	}
}

// NewWakes makes the wakes of a driver. explain makes an error of Redis one of the driver. parse reads a
// message: the addressee, and the wake for its listeners. A message with an error is dropped.
func NewWakes[W any](
	over *Transport, explain func(error) error, parse func(message string) (string, W, error),
) *Wakes[W] {
	w := &Wakes[W]{
		transport: over, explain: explain, parse: parse,
		listeners: make(map[string][]chan W), channels: make(map[string]*channel),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Listen sends the wakes for an addressee, which come on a channel of Redis, of its driver.
func (w *Wakes[W]) Listen(ctx context.Context, channel, addressee string) (<-chan W, func(), error) {
	wake := make(chan W, 1)
	c, err := w.enter(channel, addressee, wake)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { w.stopListening(addressee, wake) }
	if err := w.awaitConfirmation(ctx, c); err != nil {
		stop()
		return nil, nil, err
	}
	return wake, stop, nil
}

// enter begins a listener of an addressee, and subscribes to the channel of a name once.
func (w *Wakes[W]) enter(name, addressee string, wake chan W) (*channel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil, redis.ErrClosed
	}
	if time.Now().Before(w.retry) {
		return nil, w.refused
	}
	c := w.channels[name]
	if c == nil {
		c = &channel{begun: time.Now(), settled: make(chan struct{})}
		w.channels[name] = c
		pubsub := w.pubsub
		switch {
		case len(w.channels) == 1:
			w.refused = nil
			w.running.Go(w.subscribe)
		case pubsub != nil:
			w.running.Go(func() { w.add(pubsub, name) })
		}
	}
	w.listeners[addressee] = append(w.listeners[addressee], wake)
	return c, nil
}

// awaitConfirmation waits for the answer of the server to a subscription. A refusal is an error.
func (w *Wakes[W]) awaitConfirmation(ctx context.Context, c *channel) error {
	timer := time.NewTimer(time.Until(c.begun.Add(confirmLimit)))
	defer timer.Stop()
	select {
	case <-c.settled:
	case <-timer.C:
	case <-ctx.Done():
	case <-w.ctx.Done():
	}
	switch {
	case c.isSettled():
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.refused
	case ctx.Err() != nil:
		return ctx.Err()
	case w.ctx.Err() != nil:
		return redis.ErrClosed
	}
	return w.explain(fmt.Errorf("the subscription was not confirmed within %s", confirmLimit))
}

// stopListening ends a listener of an addressee.
func (w *Wakes[W]) stopListening(addressee string, wake chan W) {
	w.mu.Lock()
	defer w.mu.Unlock()
	others := slices.DeleteFunc(w.listeners[addressee], func(other chan W) bool { return other == wake })
	if w.listeners[addressee] = others; len(others) == 0 {
		delete(w.listeners, addressee)
	}
}

// Close ends the subscription, and waits for its goroutines.
func (w *Wakes[W]) Close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.running.Wait()
}

// subscribe delivers messages until Close, or until the server refuses a channel.
func (w *Wakes[W]) subscribe() {
	client := w.transport.client
	if node, ok := client.(*redis.Client); ok && !FollowsSentinels(node) {
		// ⚑ go-redis reads on for the ReadTimeout after a ctx has ended, if the server hangs while it connects.
		own := newConn(ownOptions(node.Options()))
		defer func() { _ = own.client.Close() }()
		defer context.AfterFunc(w.ctx, own.closeWire)()
		client = own.client
	}
	var err error // that ended the last connection
	for w.ctx.Err() == nil {
		reload(w.transport.client, err)
		if err = w.read(client); w.refuses(err) {
			w.refuse(err)
			return
		}
		pause(w.ctx, reconnectPause)
	}
}

// read subscribes with a new connection, and delivers messages until the connection fails.
func (w *Wakes[W]) read(client redis.UniversalClient) error {
	pubsub := client.Subscribe(w.ctx) // to no channel, so it does not connect yet
	defer func() { _ = pubsub.Close() }()
	defer context.AfterFunc(w.ctx, func() { _ = pubsub.Close() })()
	w.mu.Lock()
	w.pubsub = pubsub
	channels := slices.Collect(maps.Keys(w.channels))
	w.mu.Unlock()
	w.add(pubsub, channels...)
	pinged := false // without an answer yet
	for {
		message, err := pubsub.ReceiveTimeout(w.ctx, silence)
		switch m := message.(type) {
		case *redis.Message:
			w.deliver(m.Payload)
		case *redis.Subscription:
			if err := w.onSubscribed(m.Channel); err != nil {
				return err
			}
		}
		var timeout net.Error
		switch {
		case err == nil, pinged && w.refuses(err): // a refused ping is an answer, too
			pinged = false
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			_ = pubsub.Ping(w.ctx)
		default:
			return err
		}
	}
}

// add subscribes to channels. ⚑ If that fails, go-redis can reconnect and leave them out. So this ends the
// connection, and another one begins with all channels.
func (w *Wakes[W]) add(pubsub *redis.PubSub, channels ...string) {
	if err := pubsub.Subscribe(w.ctx, channels...); err != nil {
		_ = pubsub.Close()
	}
}

// onSubscribed notes that the server has confirmed a channel. After an interruption all listeners ask Redis,
// because messages may be lost.
func (w *Wakes[W]) onSubscribed(name string) error {
	w.mu.Lock()
	c := w.channels[name]
	if c == nil || c.isSettled() {
		var zero W
		for _, listeners := range w.listeners {
			notify(listeners, zero)
		}
		w.mu.Unlock()
		return nil
	}
	w.mu.Unlock()
	// The user may have the right to subscribe without the right to publish. Then no process
	// notifies, and waiters have to poll.
	publish := redis.NewIntCmd(w.ctx, "publish", name, "")
	if err := w.transport.Do(w.ctx, name, publish); w.refuses(err) {
		return err
	}
	close(c.settled)
	return nil
}

// deliver sends a message to the listeners of its addressee.
func (w *Wakes[W]) deliver(message string) {
	addressee, wake, err := w.parse(message)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	notify(w.listeners[addressee], wake)
}

// notify replaces a wake that a listener has not read yet. There is one sender at a time.
func notify[W any](listeners []chan W, wake W) {
	for _, to := range listeners {
		select {
		case <-to:
		default:
		}
		to <- wake
	}
}

// refuses reports whether err is a lasting refusal by the server.
func (w *Wakes[W]) refuses(err error) bool {
	return IsReply(err) && !IsTemporary(w.transport.client, err)
}

// refuse ends a subscription that the server does not allow. Waiters poll. After refusedFor the
// next Listen subscribes again.
func (w *Wakes[W]) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused, w.retry, w.pubsub = w.explain(err), time.Now().Add(refusedFor), nil
	for _, c := range w.channels {
		if !c.isSettled() {
			close(c.settled)
		}
	}
	clear(w.channels)
	for _, listeners := range w.listeners {
		for _, to := range listeners {
			close(to)
		}
	}
	clear(w.listeners)
}
