package campaign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/faultnet"
)

// slot is the place of a worker, which another run takes when one has died.
type slot struct {
	n       int
	network *faultnet.Net // nil: it connects to the servers itself
	via     map[string]string
	started int // so many

	mu     sync.Mutex
	worker *worker // nil: no worker
}

// now is the worker that runs, or nil.
func (s *slot) now() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worker
}

// worker is one run of a process.
type worker struct {
	run int
	*child.Child
}

// fill starts a worker and keeps the slot filled, until the campaign ends.
func (c *campaign) fill(s *slot) {
	defer c.crew.Done()
	pause := stream(c.plan.seed, fmt.Sprint("pause ", c.plan.on, s.n))
	for c.ctx.Err() == nil {
		w, err := c.startWorker(s)
		if err != nil {
			c.t.Errorf("a worker does not start: %v", err)
			return
		}
		if w.ReceiveWithin(20*time.Second, new(string)) == nil { // or it has ended
			s.mu.Lock()
			s.worker = w
			s.mu.Unlock()
		}
		select {
		case <-w.Done():
		case <-c.ctx.Done():
			c.stop(w)
		}
		s.mu.Lock()
		s.worker = nil
		s.mu.Unlock()
		c.register.gone(w.run)
		c.ended(w)
		select {
		case <-time.After(between(pause, 0, 200*time.Millisecond)):
		case <-c.ctx.Done():
		}
	}
}

// startWorker starts a process that dies with this one.
func (c *campaign) startWorker(s *slot) (*worker, error) {
	run := 1 + s.n + s.started*len(c.slots) // so that the seed makes the same of it
	s.started++
	c.mu.Lock()
	c.runs++
	c.mu.Unlock()
	config := config{
		On: c.plan.on, Works: c.plan.works, Via: s.via, Register: c.socket.Addr().String(), Run: run, Seed: c.plan.seed,
		TTL: c.plan.ttl, Start: c.start, Rotate: c.plan.rotate,
		Goroutines: c.plan.goroutines, Punctual: (s.started+s.n)%2 == 0,
		Hammers: c.plan.hammers, Broken: c.plan.broken,
	}
	if c.postgres != nil {
		config.Postgres = c.database.URL()
	} else {
		config.Addrs, config.MasterName = c.storeAddrs(), c.service.MasterName()
		if c.service.Quorum != nil {
			config.Nodes = c.service.Addrs()
		}
	}
	child, err := child.StartRole(context.Background(), "worker", config, nil)
	return &worker{Child: child, run: run}, err
}

// stop asks a worker to end, and kills it if it does not.
func (c *campaign) stop(w *worker) {
	w.Stop()
	_ = w.Signal(syscall.SIGCONT)
	select {
	case <-w.Done():
	case <-time.After(20 * time.Second):
		c.blame(&finding{kind: "failure", at: now(), text: fmt.Sprintf("run %d does not end", w.run)})
		_ = w.Signal(syscall.SIGQUIT) // it prints its goroutines
		time.Sleep(200 * time.Millisecond)
		w.Kill()
		<-w.Done()
	}
}

// ended looks at what a worker has left. A kill is no error.
func (c *campaign) ended(w *worker) {
	err, stderr := w.Close(), w.Stderr()
	if err != nil || strings.Contains(stderr, "DATA RACE") {
		c.blame(&finding{kind: "failure", at: now(), text: fmt.Sprintf("run %d has ended with %v\n%s", w.run, err, stderr[max(0, len(stderr)-4000):])})
	}
}

func (w *worker) tell(o order) {
	_ = w.Send(o) // fails if it has ended
}

// serve answers what workers say, until the socket is closed.
func (c *campaign) serve() {
	defer c.serving.Done()
	for {
		conn, err := c.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.t.Errorf("the register: %v", err)
			return
		}
		c.serving.Go(func() {
			defer conn.Close()
			for l := newLine(conn); ; {
				var s said
				if l.in.Decode(&s) != nil || l.out.Encode(c.receive(&s)) != nil {
					return // the worker has ended
				}
			}
		})
	}
}

// receive takes what a worker says.
func (c *campaign) receive(s *said) (a answer) {
	switch s.What {
	case sayReached:
		a = c.reached(s)
	case sayEnter:
		a = c.register.enter(s)
	case sayLeave:
		a = c.register.leave(s)
	case sayWrite:
		a = c.register.write(s)
	case sayTrusted:
		c.register.trusted(s)
	case sayAttempt:
		c.ledger.add(s.Attempt)
	case sayOperation:
		c.histories.add(s)
	case sayWrong:
		c.blame(&finding{
			kind: "failure", key: s.Key, at: now(), asked: s.Began, answered: s.Got,
			text: fmt.Sprintf("run %d: %s", s.Run, s.Text),
		})
	}
	c.register.mu.Lock()
	defer c.register.mu.Unlock()
	for k, n := range s.Counts {
		c.register.counts[k] += n
	}
	c.register.waited = max(c.register.waited, s.Waited)
	return a
}
