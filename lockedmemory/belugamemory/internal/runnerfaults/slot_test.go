package runnerfaults

import (
	"context"
	"strings"
	"sync"

	"github.com/belugalock/belugalock/internal/test/child"
)

// slot is the place of a process. Another process follows a killed one.
type slot struct {
	campaign *campaign
	n        int

	mu      sync.Mutex
	changed *sync.Cond   // child or over
	child   *child.Child // nil: none
	paused  *child.Child // nil: none
	over    bool
	waiting map[int]chan reply // the clients of the child, by turn
}

func newSlot(c *campaign, n int) *slot {
	s := &slot{campaign: c, n: n, waiting: map[int]chan reply{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// employ starts processes, one after the other, until dismiss.
func (s *slot) employ() {
	defer s.dismiss() // also after a failure
	for {
		child, err := child.StartRole(context.Background(), "instance", s.campaign.config, nil)
		if err != nil {
			s.campaign.wrong("a process does not start: %v", err)
			return
		}
		s.mu.Lock()
		s.child = child
		over := s.over
		s.changed.Broadcast()
		s.mu.Unlock()
		if over {
			child.Stop()
		}
		for {
			var answer reply
			if child.Receive(&answer) != nil {
				break
			}
			s.answer(answer)
		}
		s.mu.Lock()
		s.child = nil
		for turn, client := range s.waiting { // the process has ended, so no answer follows
			client <- reply{Turn: turn, Code: "broken", Err: "the connection is broken"}
		}
		clear(s.waiting)
		over = s.over
		s.mu.Unlock()
		err = child.Close()
		if text := child.Stderr(); err != nil || strings.Contains(text, "DATA RACE") {
			s.campaign.wrong("process %d: %v\n%s", s.n, err, text)
			over = true
		}
		if over {
			return
		}
	}
}

func (s *slot) answer(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client, ok := s.waiting[r.Turn]
	delete(s.waiting, r.Turn)
	if !ok {
		s.campaign.wrong("a second answer to turn %d: %+v", r.Turn, r)
		return
	}
	client <- r
}

// ask sends a message to the process and returns what the client sees.
func (s *slot) ask(r request) reply {
	client := make(chan reply, 1)
	s.mu.Lock()
	for s.child == nil && !s.over {
		s.changed.Wait()
	}
	child := s.child
	if s.over {
		s.mu.Unlock()
		return reply{Turn: r.Turn, Code: "broken", Err: "there is no process"}
	}
	s.waiting[r.Turn] = client
	s.mu.Unlock()
	_ = child.Send(r) // fails if the process has ended, which employ reports
	return <-client
}

// kill reports whether it has killed a process that has clients and is not paused.
func (s *slot) kill() bool {
	child := s.victim()
	if child == nil {
		return false
	}
	child.Kill()
	<-child.Done()
	return true
}

// pause reports whether it has paused a process that has clients.
func (s *slot) pause() bool {
	child := s.victim()
	if child == nil || child.Pause() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = child
	return true
}

// resume ends the pause.
func (s *slot) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.paused.Continue() // nothing else ends a paused process
	s.paused = nil
}

// victim returns the process if it has clients and is not paused.
func (s *slot) victim() *child.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.paused != nil {
		return nil
	}
	return s.child
}

// dismiss ends the process.
func (s *slot) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.changed.Broadcast()
	if s.child != nil {
		s.child.Stop()
	}
}
