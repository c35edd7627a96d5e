// Package renewal sends renewals in batches, a few at a time.
package renewal

import (
	"sync"
	"time"
)

const (
	// maxInFlight is how many batches are under way at once while the backend answers: it works at one,
	// and another is made or read. Each batch costs a goroutine and a connection.
	maxInFlight = 2
	// Stagger is how long a further batch waits for an answer. It is short: batches without an answer
	// must not delay the others.
	Stagger = 25 * time.Millisecond
)

// Sender sends its items in batches. Set Limit and Send before the first use. The zero value of the
// rest is ready.
type Sender[T any] struct {
	// Limit is the most items of a batch.
	Limit int
	// Send sends one batch in a goroutine of its own. It calls done when the batch has its answer, or
	// when the answer is overdue, so that another batch may follow. Further calls of done do nothing.
	Send func(items []T, done func())

	mu       sync.Mutex
	pending  []T
	inFlight int
	last     time.Time // when the last batch was sent
	waiting  bool      // a timer sends the next batch
}

// Add sends items after those that are pending.
func (s *Sender[T]) Add(items ...T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, items...)
	s.sendLocked()
}

func (s *Sender[T]) sendLocked() {
	for len(s.pending) > 0 {
		now := time.Now()
		if wait := s.last.Add(Stagger).Sub(now); s.inFlight >= maxInFlight && wait > 0 {
			if !s.waiting {
				s.waiting = true
				time.AfterFunc(max(wait, 1), s.staggered)
			}
			return
		}
		n := min(len(s.pending), s.Limit)
		batch := s.pending[:n:n]
		s.pending = s.pending[n:]
		s.inFlight++
		s.last = now
		go s.Send(batch, sync.OnceFunc(s.done))
	}
	s.pending = nil
}

func (s *Sender[T]) staggered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.sendLocked()
}

func (s *Sender[T]) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	s.sendLocked()
}

// InFlight is how many batches count as under way.
func (s *Sender[T]) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}
