package drivertest

import (
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// notifyTests are those of a driver.Listener without Capabilities.Queues.
var notifyTests = map[string]func(*testing.T, New){
	"L_aReleaseWakesEveryWaiter": testReleaseWakes,
	"L_aStoppedListenerIsSilent": testStoppedListener,
}

// asks is a waiter that has found the name busy, and has no place anywhere.
func (s *subject) asks() *waiter {
	s.tb.Helper()
	w := s.waiter()
	w.req.Seq++
	if reply := s.refused(w.req, driver.Busy); reply.Ticket != 0 || reply.State.Waiters != 0 {
		s.tb.Errorf("a backend without a queue shows %+v", reply)
	}
	return w
}

// woken waits until the zero Wake comes.
func (w *waiter) woken() {
	w.tb.Helper()
	select {
	case wake := <-w.wakes:
		if wake.Seq != 0 || wake.Grant.Outcome == driver.Granted {
			w.tb.Errorf("a backend without a queue sent %+v, want the zero Wake", wake)
		}
	case <-time.After(notified):
		w.tb.Error("a release did not wake every waiter")
	}
}

func testReleaseWakes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	waiters := []*waiter{s.asks(), s.asks()}
	for _, w := range waiters {
		w.leave(false)
	}
	s.release(holder, true)
	for _, w := range waiters {
		w.woken()
	}
	s.granted(waiters[1].req)
	s.refused(waiters[0].req, driver.Busy)
}

func testStoppedListener(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	silent, awake := s.asks(), s.asks()
	silent.stop()
	s.release(holder, true)
	awake.woken()
	select {
	case wake, open := <-silent.wakes:
		if open {
			t.Errorf("a stopped listener received %+v", wake)
		}
	default:
	}
}
