package redisconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// silence is how long the connection may be silent before it is checked with a ping.
	silence = 10 * time.Second
	// reconnectPause is the time between two attempts to connect again.
	reconnectPause = 100 * time.Millisecond
)

// subscription is the connection on which the server notifies a driver. One goroutine reads it. The
// connection reconnects by itself.
type subscription[W any] struct {
	notices *Notices[W]
	client  redis.UniversalClient
	owned   bool // the client is that of the subscription
	ctx     context.Context
	cancel  context.CancelFunc

	mu       sync.Mutex
	pubsub   *redis.PubSub
	channels map[string]*channel
}

// channel is a channel of Redis.
type channel struct {
	ready     chan struct{} // closed when messages arrive, and when the subscription ends
	confirmed bool
}

func newSubscription[W any](n *Notices[W]) *subscription[W] {
	s := &subscription[W]{notices: n, channels: make(map[string]*channel)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.client = n.redis.client
	if node, ok := s.client.(*redis.Client); ok && !FollowsSentinels(node) {
		s.client, s.owned = redis.NewClient(closedAfter(s.ctx, node.Options())), true
	}
	s.pubsub = s.client.Subscribe(s.ctx) // to no channel, so it does not connect yet
	return s
}

// closedAfter returns options of a connection that is closed when ctx ends. ⚑ go-redis reads on for the
// ReadTimeout after ctx has ended, and keeps Close waiting, if the server hangs while it connects.
func closedAfter(ctx context.Context, client *redis.Options) *redis.Options {
	options := ownOptions(client)
	dial := options.Dialer
	options.Dialer = func(dialing context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(dialing, network, addr)
		if err != nil {
			return nil, err
		}
		return closedConn{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
	}
	return options
}

type closedConn struct {
	net.Conn
	stop func() bool
}

func (c closedConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// to subscribes to a channel once. The server has accepted or refused it when ready is closed.
func (s *subscription[W]) to(name string) (ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[name]
	if ch == nil {
		ch = &channel{ready: make(chan struct{})}
		first := len(s.channels) == 0
		s.channels[name] = ch
		pubsub := s.pubsub
		s.notices.running.Go(func() { s.subscribe(pubsub, name) })
		if first {
			s.notices.running.Go(s.read)
		}
	}
	return ch.ready
}

// subscribe sends the subscription, and repeats it until it is sent. ⚑ go-redis stores a channel
// that it could not send, and subscribes to it when it reconnects. If it reconnects before it
// stores the channel, it never subscribes.
func (s *subscription[W]) subscribe(pubsub *redis.PubSub, name string) {
	for s.ctx.Err() == nil {
		if err := pubsub.Subscribe(s.ctx, name); err == nil || errors.Is(err, redis.ErrClosed) {
			return
		}
		pause(s.ctx, reconnectPause)
	}
}

// end ends the goroutines, and the waits for a channel. It may be called again. ⚑ Close waits while
// another goroutine dials for the connection, so the caller holds no lock.
func (s *subscription[W]) end() {
	s.cancel()
	s.mu.Lock()
	pubsub := s.pubsub
	for _, ch := range s.channels {
		select {
		case <-ch.ready:
		default:
			close(ch.ready)
		}
	}
	s.mu.Unlock()
	_ = pubsub.Close()
	if s.owned {
		_ = s.client.Close()
	}
}

func (s *subscription[W]) read() {
	pinged := false // without an answer yet
	for s.ctx.Err() == nil {
		message, err := s.pubsub.ReceiveTimeout(s.ctx, silence)
		var timeout net.Error
		switch m := message.(type) {
		case *redis.Message:
			s.notices.deliver(m.Payload)
		case *redis.Subscription:
			s.subscribed(m.Channel)
		}
		switch {
		case err == nil:
			pinged = false
		case refuses(err) && pinged: // a refused ping is an answer, too
			pinged = false
		case refuses(err):
			s.notices.refuse(s, err)
			return
		case IsReply(err): // the server refuses to subscribe for now
			pause(s.ctx, reconnectPause)
			s.renew()
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			_ = s.pubsub.Ping(s.ctx)
		case errors.As(err, &timeout) && timeout.Timeout():
			pinged = false
			s.renew()
		default:
			pause(s.ctx, reconnectPause)
		}
	}
}

// subscribed notes that the server has confirmed a channel, for the first time or after an
// interruption.
func (s *subscription[W]) subscribed(name string) {
	s.mu.Lock()
	ch := s.channels[name]
	again := ch == nil || ch.confirmed
	if !again {
		ch.confirmed = true
	}
	s.mu.Unlock()
	if again {
		s.notices.all()
		return
	}
	// The user may have the right to subscribe without the right to publish. Then no process
	// notifies, and waiters have to poll.
	s.notices.running.Go(func() {
		publish := redis.NewIntCmd(s.ctx, "publish", name, "")
		if err := s.notices.redis.Do(s.ctx, name, publish); refuses(err) {
			s.notices.refuse(s, err)
			return
		}
		s.notices.confirmed(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() == nil {
			close(ch.ready)
		}
	})
}

// refuses reports whether err is a lasting refusal by the server.
func refuses(err error) bool {
	return err != nil && IsReply(err) && !isTemporary(err)
}

// renew replaces a connection on which the server does not answer.
func (s *subscription[W]) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	silent, pubsub := s.pubsub, s.client.Subscribe(s.ctx)
	s.pubsub = pubsub
	// ⚑ See end.
	s.notices.running.Go(func() { _ = silent.Close() })
	for name := range s.channels {
		s.notices.running.Go(func() { s.subscribe(pubsub, name) })
	}
}
