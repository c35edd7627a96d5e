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

// Notices sends the messages of Redis to the listeners of a driver. All listeners share one connection. The
// first one begins it, and channels stay subscribed until the server refuses one, or Close.
//
// Messages can be lost, so no listener relies on them. After every interruption all listeners get
// the zero wake, and ask Redis.
type Notices[W any] struct {
	redis   *Transport
	explain func(error) error
	parse   func(message string) (to string, wake W, err error)
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

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

// NewNotices makes the notices of a driver. explain makes an error of Redis one of the driver. parse reads a
// message: the addressee, and the wake for its listeners. A message with an error is dropped.
func NewNotices[W any](
	over *Transport, explain func(error) error, parse func(message string) (string, W, error),
) *Notices[W] {
	n := &Notices[W]{
		redis: over, explain: explain, parse: parse,
		listeners: make(map[string][]chan W), channels: make(map[string]*channel),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Listen sends the wakes for an addressee, which come on a channel of Redis, of its driver.
func (n *Notices[W]) Listen(ctx context.Context, channel, addressee string) (<-chan W, func(), error) {
	wake := make(chan W, 1)
	c, err := n.enter(channel, addressee, wake)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { n.leave(addressee, wake) }
	if err := n.confirmed(ctx, c); err != nil {
		stop()
		return nil, nil, err
	}
	return wake, stop, nil
}

// enter begins a listener of an addressee, and subscribes to the channel of a name once.
func (n *Notices[W]) enter(name, addressee string, wake chan W) (*channel, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return nil, redis.ErrClosed
	}
	if time.Now().Before(n.retry) {
		return nil, n.refused
	}
	c := n.channels[name]
	if c == nil {
		c = &channel{begun: time.Now(), settled: make(chan struct{})}
		n.channels[name] = c
		pubsub := n.pubsub
		switch {
		case len(n.channels) == 1:
			n.refused = nil
			n.running.Go(n.subscribe)
		case pubsub != nil:
			n.running.Go(func() { n.add(pubsub, name) })
		}
	}
	n.listeners[addressee] = append(n.listeners[addressee], wake)
	return c, nil
}

// confirmed waits for the answer of the server to a subscription. A refusal is an error.
func (n *Notices[W]) confirmed(ctx context.Context, c *channel) error {
	timer := time.NewTimer(time.Until(c.begun.Add(confirmLimit)))
	defer timer.Stop()
	select {
	case <-c.settled:
	case <-timer.C:
	case <-ctx.Done():
	case <-n.ctx.Done():
	}
	switch {
	case c.isSettled():
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.refused
	case ctx.Err() != nil:
		return ctx.Err()
	case n.ctx.Err() != nil:
		return redis.ErrClosed
	}
	return n.explain(fmt.Errorf("the subscription was not confirmed within %s", confirmLimit))
}

// leave ends a listener of an addressee.
func (n *Notices[W]) leave(addressee string, wake chan W) {
	n.mu.Lock()
	defer n.mu.Unlock()
	others := slices.DeleteFunc(n.listeners[addressee], func(other chan W) bool { return other == wake })
	if n.listeners[addressee] = others; len(others) == 0 {
		delete(n.listeners, addressee)
	}
}

// Close ends the subscription, and waits for its goroutines.
func (n *Notices[W]) Close() {
	n.mu.Lock()
	n.cancel()
	n.mu.Unlock()
	n.running.Wait()
}

// subscribe delivers messages until Close, or until the server refuses a channel.
func (n *Notices[W]) subscribe() {
	client := n.redis.client
	if node, ok := client.(*redis.Client); ok && !FollowsSentinels(node) {
		// ⚑ go-redis reads on for the ReadTimeout after a ctx has ended, if the server hangs while it connects.
		own := newConn(ownOptions(node.Options()))
		defer func() { _ = own.client.Close() }()
		defer context.AfterFunc(n.ctx, own.leave)()
		client = own.client
	}
	var err error // that ended the last connection
	for n.ctx.Err() == nil {
		reload(n.redis.client, err)
		if err = n.read(client); n.refuses(err) {
			n.refuse(err)
			return
		}
		pause(n.ctx, reconnectPause)
	}
}

// read subscribes with a new connection, and delivers messages until the connection fails.
func (n *Notices[W]) read(client redis.UniversalClient) error {
	pubsub := client.Subscribe(n.ctx) // to no channel, so it does not connect yet
	defer func() { _ = pubsub.Close() }()
	defer context.AfterFunc(n.ctx, func() { _ = pubsub.Close() })()
	n.mu.Lock()
	n.pubsub = pubsub
	channels := slices.Collect(maps.Keys(n.channels))
	n.mu.Unlock()
	n.add(pubsub, channels...)
	pinged := false // without an answer yet
	for {
		message, err := pubsub.ReceiveTimeout(n.ctx, silence)
		switch m := message.(type) {
		case *redis.Message:
			n.deliver(m.Payload)
		case *redis.Subscription:
			if err := n.subscribed(m.Channel); err != nil {
				return err
			}
		}
		var timeout net.Error
		switch {
		case err == nil, pinged && n.refuses(err): // a refused ping is an answer, too
			pinged = false
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			_ = pubsub.Ping(n.ctx)
		default:
			return err
		}
	}
}

// add subscribes to channels. ⚑ If that fails, go-redis can reconnect and leave them out. So this ends the
// connection, and another one begins with all channels.
func (n *Notices[W]) add(pubsub *redis.PubSub, channels ...string) {
	if err := pubsub.Subscribe(n.ctx, channels...); err != nil {
		_ = pubsub.Close()
	}
}

// subscribed notes that the server has confirmed a channel. After an interruption all listeners ask Redis,
// because messages may be lost.
func (n *Notices[W]) subscribed(name string) error {
	n.mu.Lock()
	c := n.channels[name]
	if c == nil || c.isSettled() {
		var zero W
		for _, listeners := range n.listeners {
			notify(listeners, zero)
		}
		n.mu.Unlock()
		return nil
	}
	n.mu.Unlock()
	// The user may have the right to subscribe without the right to publish. Then no process
	// notifies, and waiters have to poll.
	publish := redis.NewIntCmd(n.ctx, "publish", name, "")
	if err := n.redis.Do(n.ctx, name, publish); n.refuses(err) {
		return err
	}
	close(c.settled)
	return nil
}

// deliver sends a message to the listeners of its addressee.
func (n *Notices[W]) deliver(message string) {
	addressee, wake, err := n.parse(message)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	notify(n.listeners[addressee], wake)
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
func (n *Notices[W]) refuses(err error) bool {
	return IsReply(err) && !IsTemporary(n.redis.client, err)
}

// refuse ends a subscription that the server does not allow. Waiters poll. After refusedFor the
// next Listen subscribes again.
func (n *Notices[W]) refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused, n.retry, n.pubsub = n.explain(err), time.Now().Add(refusedFor), nil
	for _, c := range n.channels {
		if !c.isSettled() {
			close(c.settled)
		}
	}
	clear(n.channels)
	for _, listeners := range n.listeners {
		for _, to := range listeners {
			close(to)
		}
	}
	clear(n.listeners)
}
