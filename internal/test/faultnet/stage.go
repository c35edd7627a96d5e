package faultnet

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"time"
)

// stageSize is how many requests or replies may be on their way on a connection.
const stageSize = 1024

// chunk is a request or a reply on its way.
type chunk struct {
	data []byte
	read time.Time
}

// stage is the way in one direction of a link: it reads ahead, and lets each chunk pass after the
// proxy's latency.
type stage struct {
	proxy *Proxy
	in    chan chunk
	err   error // why in was closed; to be read once it is
}

func newStage(p *Proxy) *stage { return &stage{proxy: p, in: make(chan chunk, stageSize)} }

// fill reads values until the connection ends.
func (s *stage) fill(conn net.Conn, kinds string) {
	defer close(s.in)
	for f := newFramer(conn, kinds); ; {
		data, err := f.next()
		if len(data) > 0 {
			s.in <- chunk{data, time.Now()}
		}
		if err != nil {
			s.err = err
			return
		}
	}
}

// all returns what has passed, until the connection has ended or ctx is done.
func (s *stage) all(ctx context.Context) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			select {
			case c, more := <-s.in:
				if !more || !s.proxy.delay(ctx, c.read) || !yield(c.data) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// wasReset tells, once everything has passed, whether the connection ended other than by being
// closed in order.
func (s *stage) wasReset() bool {
	return !errors.Is(s.err, io.EOF) && !errors.Is(s.err, io.ErrUnexpectedEOF)
}

// drain discards the rest, so that fill can end. The connection has to be closed.
func (s *stage) drain() {
	for range s.in {
	}
}
