package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// subject is a driver and a fresh name, with calls that fail the test if they fail.
type subject struct {
	driver.Driver
	tb   testing.TB
	name driver.Name
}

func newSubject(tb testing.TB, d driver.Driver) *subject {
	return &subject{Driver: d, tb: tb, name: freshName()}
}

func freshName() driver.Name { return driver.Name{Namespace: "drivertest", Key: randomHex()} }

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// request is one of a new owner.
func (s *subject) request() driver.AcquireRequest {
	return driver.AcquireRequest{Name: s.name, Owner: randomHex(), TTL: long, Holder: "drivertest"}
}

// expiring is a request of a new owner, whose grant the test sees expire. A driver's first request opens
// connections. On several nodes that may take as long as the TTL, so an inspection comes first.
func (s *subject) expiring() driver.AcquireRequest {
	s.tb.Helper()
	s.state()
	req := s.request()
	req.TTL = short
	return req
}

func (s *subject) acquire(req driver.AcquireRequest) driver.AcquireReply {
	s.tb.Helper()
	reply, err := s.Acquire(context.Background(), req)
	if err != nil {
		s.tb.Fatalf("Acquire: %v", err)
	}
	return reply
}

func (s *subject) granted(req driver.AcquireRequest) driver.AcquireReply {
	s.tb.Helper()
	reply := s.acquire(req)
	// A quorum that knows no holder may yet undo an earlier attempt that it has refused.
	deadline := time.Now().Add(20 * short)
	for reply.Outcome == driver.Busy && reply.State.Fence == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond) // a poll, not a hope
		reply = s.acquire(req)
	}
	if reply.Outcome != driver.Granted {
		s.tb.Fatalf("Acquire: outcome %d, want Granted", reply.Outcome)
	}
	return reply
}

func (s *subject) refused(req driver.AcquireRequest, want driver.Outcome) driver.AcquireReply {
	s.tb.Helper()
	reply := s.acquire(req)
	if reply.Outcome != want {
		s.tb.Fatalf("Acquire: outcome %d, want %d", reply.Outcome, want)
	}
	if reply.Fence != 0 || reply.FenceEnd != 0 {
		s.tb.Errorf("a refused acquire shows a fence: %+v", reply)
	}
	return reply
}

func (s *subject) release(req driver.AcquireRequest, want bool) {
	s.tb.Helper()
	s.releaseWithTombstone(req, 0, want)
}

func (s *subject) releaseWithTombstone(req driver.AcquireRequest, tombstone time.Duration, want bool) {
	s.tb.Helper()
	reply, err := s.Release(context.Background(),
		driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: tombstone})
	if err != nil {
		s.tb.Fatalf("Release: %v", err)
	}
	if reply.Released != want {
		s.tb.Fatalf("Release: Released is %t, want %t", reply.Released, want)
	}
}

func (s *subject) extend(req driver.AcquireRequest, ttl time.Duration, want bool) {
	s.tb.Helper()
	extend := driver.ExtendRequest{Name: req.Name, Owner: req.Owner, TTL: ttl}
	reply := s.Extend(context.Background(), []driver.ExtendRequest{extend})[0]
	if reply.Err != nil {
		s.tb.Fatalf("Extend: %v", reply.Err)
	}
	if reply.Held != want {
		s.tb.Fatalf("Extend: Held is %t, want %t", reply.Held, want)
	}
}

// raised raises the token of the request's owner, which holds the name.
func (s *subject) raised(req driver.AcquireRequest, floor int64) driver.RaiseReply {
	s.tb.Helper()
	reply := s.raise(req, floor)
	if !reply.Held || reply.Fence < floor || reply.FenceEnd < reply.Fence {
		s.tb.Fatalf("Raise: %+v, want a block from %d on", reply, floor)
	}
	return reply
}

// notRaised checks that the request's owner gets no token.
func (s *subject) notRaised(req driver.AcquireRequest, floor int64) {
	s.tb.Helper()
	if reply := s.raise(req, floor); reply != (driver.RaiseReply{}) {
		s.tb.Errorf("Raise by an owner that does not hold the name: %+v", reply)
	}
}

func (s *subject) raise(req driver.AcquireRequest, floor int64) driver.RaiseReply {
	s.tb.Helper()
	reply, err := s.Raise(context.Background(), driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: floor})
	if err != nil {
		s.tb.Fatalf("Raise: %v", err)
	}
	return reply
}

func (s *subject) state() driver.State {
	s.tb.Helper()
	state, err := s.Inspect(context.Background(), s.name)
	if err != nil {
		s.tb.Fatalf("Inspect: %v", err)
	}
	return state
}

// takenOver waits until the name is granted to a new owner and returns that grant; it fails the
// test after a time.
func (s *subject) takenOver() (driver.AcquireRequest, driver.AcquireReply) {
	s.tb.Helper()
	deadline := time.Now().Add(20 * short)
	for time.Now().Before(deadline) {
		req := s.request()
		if reply := s.acquire(req); reply.Outcome == driver.Granted {
			return req, reply
		}
		time.Sleep(time.Millisecond) // a poll, not a hope
	}
	s.tb.Fatal("the name was never free again")
	return driver.AcquireRequest{}, driver.AcquireReply{}
}

// awaitFree waits until the name is free.
func (s *subject) awaitFree() {
	s.tb.Helper()
	for deadline := time.Now().Add(20 * short); s.state().Held; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.tb.Fatal("the grant did not expire")
		}
	}
}
