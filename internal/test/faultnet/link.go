package faultnet

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// sendTimeout ends a link whose receiver does not read what it is sent: a proxy that is sending
	// cannot be cut.
	sendTimeout = 5 * time.Second
)

var errGone = errors.New("the connection has ended")

// link is one connection of a client, with the proxy's own to the server.
type link struct {
	proxy    *Proxy
	client   *net.TCPConn
	requests *stage
	replies  *stage
	gone     chan struct{} // closed once the client sends nothing more

	ctx  context.Context // done once the link has ended
	stop context.CancelFunc

	mu         sync.Mutex
	server     *net.TCPConn // nil until it is connected
	asked      []question   // forwarded, and not answered yet
	subscribed bool
	silent     bool // the server answers nothing more
}

// question is a request that the server is to answer.
type question struct {
	drop *Dropped // the answer is to be lost
	held []*Held  // they want to know of it
	any  bool     // the next reply counts as the answer, also if it is a message
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	l := &link{proxy: p, client: client, server: server, requests: newStage(p), replies: newStage(p), gone: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// run forwards until both sides have closed, or end is called.
func (l *link) run() {
	var tasks, forwards sync.WaitGroup
	tasks.Go(func() {
		defer close(l.gone)
		l.requests.fill(l.client, requestKinds)
	})

	if server, err := l.connect(); err == nil {
		tasks.Go(func() { l.replies.fill(server, replyKinds) })
		forwards.Go(func() { l.forwardRequests(server) })
		forwards.Go(l.forwardReplies)
		forwards.Wait()
		l.end(false)
	} else {
		close(l.replies.in)
		l.end(true)
	}
	l.requests.drain()
	l.replies.drain()
	l.answerRest()
	tasks.Wait()
}

// end closes both connections; reset does it so that the client gets an error where it would have
// read the end. Further calls do nothing.
func (l *link) end(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
	if reset {
		_ = l.client.SetLinger(0) // fails if it is closed already
	}
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// connect returns the connection to the server, and makes it if necessary. While the network is
// cut, that waits; a client that closes its connection meanwhile has never reached the server.
func (l *link) connect() (*net.TCPConn, error) {
	if l.server != nil {
		return l.server, nil
	}
	for {
		mode, changed := l.proxy.state()
		if mode != cut {
			break
		}
		select {
		case <-changed:
		case <-l.gone:
		case <-l.ctx.Done():
		}
		select {
		case <-l.gone:
			return nil, errGone
		default:
		}
		if l.ctx.Err() != nil {
			return nil, errGone
		}
	}

	ctx, cancel := context.WithTimeout(l.ctx, dialTimeout)
	defer cancel()
	server, err := dialTCP(ctx, l.proxy.target)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		server.Close()
		return nil, errGone
	}
	l.server = server
	return server, nil
}

func (l *link) forwardRequests(server *net.TCPConn) {
	for request := range l.requests.all(l.ctx) {
		q := question{held: l.proxy.holding(request)}
		for _, h := range q.held {
			select {
			case <-h.released:
			case <-l.ctx.Done():
				q.answered()
				return
			}
		}
		var err error
		if !l.pass(func() { err = l.ask(server, request, q) }) {
			q.answered()
			return
		}
		if err != nil {
			l.end(true)
			return
		}
	}
	// In order, never by a reset: that would discard what the server has not read.
	l.pass(func() { _ = server.CloseWrite() })
}

// ask sends a request to the server. It is called while the proxy is not cut.
func (l *link) ask(server net.Conn, request []byte, q question) error {
	for _, d := range l.proxy.drops {
		if d.matches(request) {
			q.drop = d
			break
		}
	}
	q.any = subscribes(request) || !isRESP(request)

	l.mu.Lock()
	l.subscribed = l.subscribed || subscribes(request)
	if l.silent {
		l.mu.Unlock()
		q.answered()
		return errGone
	}
	if !q.any || q.drop != nil || len(q.held) > 0 {
		l.asked = append(l.asked, q)
	}
	l.mu.Unlock()
	return send(server, request)
}

func (l *link) forwardReplies() {
	defer l.answerRest()
	for reply := range l.replies.all(l.ctx) {
		var q question
		var err error
		if !l.pass(func() {
			if q = l.answer(reply); q.drop == nil {
				err = send(l.client, reply)
			}
			q.answered()
		}) {
			return
		}
		if q.drop != nil {
			l.end(true)
			q.drop.add()
			return
		}
		// A client that has gone only misses its reply; the server goes on.
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.end(true)
			return
		}
	}
	l.pass(func() {
		if l.replies.wasReset() {
			l.end(true)
			return
		}
		_ = l.client.CloseWrite()
	})
}

// answer returns the question that a reply answers; for a message, an empty one.
func (l *link) answer(reply []byte) question {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) == 0 || !l.asked[0].any && unasked(reply, l.subscribed) {
		return question{}
	}
	q := l.asked[0]
	l.asked = l.asked[1:]
	return q
}

// answerRest gives up what the server has not answered.
func (l *link) answerRest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
	for _, q := range l.asked {
		q.answered()
	}
	l.asked = nil
}

// answered tells those who hold a request that no more is to be expected.
func (q question) answered() {
	for _, h := range q.held {
		h.answered.add()
	}
}

// pass calls fn when the network is not cut, and keeps it from being cut until fn returns. It
// returns false if the link has ended instead.
func (l *link) pass(fn func()) bool {
	p := l.proxy
	for {
		p.gate.RLock()
		mode, changed := p.mode, p.changed
		if mode != cut {
			ended := l.ctx.Err() != nil
			if !ended {
				fn()
			}
			p.gate.RUnlock()
			return !ended
		}
		p.gate.RUnlock()
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

func send(c net.Conn, data []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err := c.Write(data)
	return err
}
