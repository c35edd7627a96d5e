package drivertest

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

func testExtendProlongs(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.TTL = long / 2
	s.granted(req)
	s.extend(req, long, true)
	if left := s.state().TTL; left <= req.TTL || left > long {
		t.Errorf("%s left after an extend to %s", left, long)
	}
}

func testExtendNeverShortens(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.granted(req)
	s.extend(req, short, true)
	if left := s.state().TTL; left <= short {
		t.Fatalf("%s left: the extend shortened the grant", left)
	}
}

func testExtendBatch(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	if replies := s.Extend(context.Background(), nil); len(replies) != 0 {
		t.Errorf("an empty batch has %d replies", len(replies))
	}
	n := driver.MaxBatch
	var (
		reqs  []driver.ExtendRequest
		holds []bool
	)
	for i := range n {
		s.name = freshName()
		req := s.request()
		if i%3 != 0 {
			s.granted(req)
		}
		owner := req.Owner
		if i%3 == 2 {
			owner = randomHex()
		}
		reqs = append(reqs, driver.ExtendRequest{Name: req.Name, Owner: owner, TTL: long})
		holds = append(holds, i%3 == 1)
	}
	// On a busy machine a node of a quorum may answer too late.
	s.soon(func() error {
		replies := s.Extend(context.Background(), reqs)
		if len(replies) != n {
			t.Fatalf("%d replies to %d requests", len(replies), n)
		}
		for i, reply := range replies {
			if reply.Err != nil {
				return reply.Err
			}
			if reply.Held != holds[i] {
				t.Errorf("reply %d is %+v, want Held %t", i, reply, holds[i])
			}
		}
		return nil
	})
}

// testCancelled makes each call under an ended context: on a free name, and on a held one.
func testCancelled(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, acquired := s.Acquire(ctx, s.request())
	req := s.request()
	grant := s.granted(req)
	_, raised := s.Raise(ctx, driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: grant.FenceEnd + 1})
	_, released := s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	_, inspected := s.Inspect(ctx, s.name)
	extended := s.Extend(ctx, []driver.ExtendRequest{{Name: req.Name, Owner: req.Owner, TTL: long}})[0].Err
	errs := map[string]error{
		"Acquire": acquired, "Raise": raised, "Release": released, "Inspect": inspected, "Extend": extended,
	}
	if lister, ok := driver.As[driver.Lister](s.Driver); ok {
		_, errs["List"] = lister.List(ctx, driver.ListRequest{Namespace: s.name.Namespace, Limit: 1})
	}
	if breaker, ok := driver.As[driver.Breaker](s.Driver); ok {
		_, errs["Break"] = breaker.Break(ctx, s.name, grant.Fence)
	}
	if asker := asker(s.Driver); asker != nil {
		_, errs["Ask"] = asker.Ask(ctx, driver.AskRequest{Name: s.name, Fence: grant.Fence})
	}
	for call, err := range errs {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrNotDone) || driver.MayHaveEffect(err) {
			t.Errorf("%s: %v, want context.Canceled and ErrNotDone", call, err)
		}
	}
	if st := s.state(); st.Fence != grant.Fence {
		t.Errorf("the token is %d, want %d", st.Fence, grant.Fence)
	}
}

func testInspect(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	if st := s.state(); st.Held || st.Fence != 0 || st.Holder != "" {
		t.Errorf("a free name shows %+v", st)
	}
	req := s.request()
	req.Holder = `a "quoted" \ holder: with {braces}`
	req.Metadata = map[string]string{"traceparent": "00-ab-cd-01", "empty": "", "odd": ":\"\\"}
	want := maps.Clone(req.Metadata)
	grant := s.granted(req)
	clear(req.Metadata) // it is the caller's
	for range 2 {       // looking changes nothing
		st := s.state()
		if !st.Held || st.Holder != req.Holder || st.Fence != grant.Fence {
			t.Errorf("a held name shows %+v", st)
		}
		for key, value := range want {
			if got, ok := st.Metadata[key]; !ok || got != value {
				t.Errorf("metadata %q is %q, want %q", key, got, value)
			}
		}
		if st.Age < 0 || st.Age > long/2 {
			t.Errorf("a fresh grant is %s old", st.Age)
		}
		if st.TTL <= long/2 || st.TTL > long {
			t.Errorf("%s of %s left", st.TTL, long)
		}
	}
	busy := s.refused(s.request(), driver.Busy).State
	if busy.Age > time.Minute || busy.Metadata["traceparent"] != "00-ab-cd-01" {
		t.Errorf("a busy reply shows %+v", busy)
	}
}
