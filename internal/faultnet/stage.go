package faultnet

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// stageSize is how many requests or replies may be on their way on a connection.
const stageSize = 1024

// stage is the way in one direction of a link: it reads ahead, and lets what it has
// read pass after the latency.
type stage struct {
	stub    *toxics.ToxicStub
	in      chan *stream.StreamChunk
	out     chan *stream.StreamChunk
	latency atomic.Int64 // milliseconds
	ended   chan struct{}
	err     error // why in was closed; to be read once out is closed
}

func newStage(latency time.Duration) *stage {
	s := &stage{
		in:    make(chan *stream.StreamChunk, stageSize),
		out:   make(chan *stream.StreamChunk, stageSize),
		ended: make(chan struct{}),
	}
	s.stub = toxics.NewToxicStub(s.in, s.out)
	s.latency.Store(latency.Milliseconds())
	return s
}

// run passes on what fill reads, until that has ended.
func (s *stage) run() {
	defer close(s.ended)
	for !s.stub.Closed() {
		toxic := &toxics.LatencyToxic{Latency: s.latency.Load()}
		toxic.Pipe(s.stub) // until it is interrupted, or in is closed
	}
}

// delay changes the latency. What is on its way goes on at once.
func (s *stage) delay(latency time.Duration) {
	s.latency.Store(latency.Milliseconds())
	select {
	case s.stub.Interrupt <- struct{}{}:
	case <-s.ended:
	}
}

// fill reads values until the connection ends.
func (s *stage) fill(conn net.Conn, kinds string) {
	defer close(s.in)
	for f := newFramer(conn, kinds); ; {
		data, err := f.next()
		if len(data) > 0 {
			s.in <- &stream.StreamChunk{Data: data, Timestamp: time.Now()}
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
			case c, more := <-s.out:
				if !more || !yield(c.Data) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// wasReset tells, once everything has passed, whether the connection ended other
// than by being closed in order.
func (s *stage) wasReset() bool {
	return !errors.Is(s.err, io.EOF) && !errors.Is(s.err, io.ErrUnexpectedEOF)
}

// drain throws away what is left, so that run and fill can end. The connection has to
// be closed.
func (s *stage) drain() {
	interrupted := make(chan struct{})
	go func() { // run may be waiting for room in out
		defer close(interrupted)
		s.delay(0)
	}()
	for range s.out {
	}
	<-interrupted
}
