package redislock

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/redisconn"
)

const (
	// silence is after how long without a word the server is asked whether it is there.
	silence = 10 * time.Second
	// reconnectPause is the time between two attempts to connect again.
	reconnectPause = 100 * time.Millisecond
)

// subscription is the connection on which the server tells a driver of hand-overs. One goroutine reads it; it
// connects again by itself.
type subscription struct {
	wakes   *wakes
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	pubsub   *redis.PubSub
	channels map[string]*channel
}

// channel is one that is subscribed to.
type channel struct {
	ready     chan struct{} // closed when messages are sure to come, or will not
	confirmed bool
}

func newSubscription(w *wakes) *subscription {
	s := &subscription{wakes: w, channels: make(map[string]*channel)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.pubsub = w.client.Subscribe(s.ctx) // to nothing: so it does not connect yet
	return s
}

// to subscribes to a channel, if that has not been done, and returns what is closed when it is known whether it may.
func (s *subscription) to(name string) (ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[name]
	if ch == nil {
		ch = &channel{ready: make(chan struct{})}
		first := len(s.channels) == 0
		s.channels[name] = ch
		pubsub := s.pubsub
		s.running.Go(func() { s.subscribe(pubsub, name) })
		if first {
			s.running.Go(s.read)
		}
	}
	return ch.ready
}

// subscribe asks for a channel until that has been sent. go-redis remembers one that it could not send, and subscribes to it
// when it connects again; but it may have done that already, before it remembered, and would then stay silent for ever.
func (s *subscription) subscribe(pubsub *redis.PubSub, name string) {
	for s.ctx.Err() == nil {
		if err := pubsub.Subscribe(s.ctx, name); err == nil || errors.Is(err, redis.ErrClosed) {
			return
		}
		redisconn.Pause(s.ctx, reconnectPause)
	}
}

// end lets the goroutines end, and those go who wait for a channel.
func (s *subscription) end() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.pubsub.Close()
	for _, ch := range s.channels {
		select {
		case <-ch.ready:
		default:
			close(ch.ready)
		}
	}
}

func (s *subscription) read() {
	asked := false // whether the server is there
	for s.ctx.Err() == nil {
		message, err := s.pubsub.ReceiveTimeout(s.ctx, silence)
		var timeout net.Error
		switch m := message.(type) {
		case *redis.Message:
			s.wakes.deliver(m.Payload)
		case *redis.Subscription:
			s.subscribed(m.Channel)
		}
		switch {
		case err == nil:
			asked = false
		case refuses(err) && asked: // to ping, which is an answer
			asked = false
		case refuses(err):
			s.wakes.refuse(s, err)
			return
		case redisconn.IsReply(err): // and so has not subscribed
			redisconn.Pause(s.ctx, reconnectPause)
			s.renew()
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			_ = s.pubsub.Ping(s.ctx)
		case errors.As(err, &timeout) && timeout.Timeout():
			asked = false
			s.renew()
		default:
			redisconn.Pause(s.ctx, reconnectPause)
		}
	}
}

// subscribed notes that the server has confirmed a channel: for the first time, or again after an interruption.
func (s *subscription) subscribed(name string) {
	s.mu.Lock()
	ch := s.channels[name]
	again := ch == nil || ch.confirmed
	if !again {
		ch.confirmed = true
	}
	s.mu.Unlock()
	if again {
		s.wakes.all()
		return
	}
	// Whoever may listen may not be allowed to call: then nobody would, and it is better to know.
	s.running.Go(func() {
		if err := s.wakes.client.Publish(s.ctx, name, "").Err(); refuses(err) {
			s.wakes.refuse(s, err)
			return
		}
		s.wakes.confirmed(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() == nil {
			close(ch.ready)
		}
	})
}

// refuses reports whether the server will not do what it was asked for, now or in a moment.
func refuses(err error) bool {
	return err != nil && redisconn.IsReply(err) && !redisconn.IsTemporary(err)
}

// renew replaces a connection on which the server does not answer.
func (s *subscription) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	_ = s.pubsub.Close()
	s.pubsub = s.wakes.client.Subscribe(s.ctx)
	pubsub := s.pubsub
	for name := range s.channels {
		s.running.Go(func() { s.subscribe(pubsub, name) })
	}
}
