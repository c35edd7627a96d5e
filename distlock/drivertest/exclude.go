package drivertest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

func testExcludes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.Holder, holder.Metadata = "first", map[string]string{"traceparent": "x"}
	grant := s.granted(holder)
	reply := s.refused(s.request(), driver.Busy)
	st := reply.State
	if !st.Held || st.Holder != "first" || st.Fence != grant.Fence || st.Metadata["traceparent"] != "x" {
		t.Errorf("a busy reply shows %+v, want the holder", st)
	}
}

func testOneWins(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	const contenders = 32
	var (
		wg       sync.WaitGroup
		outcomes = make([]driver.Outcome, contenders)
		start    = make(chan struct{})
	)
	for i := range contenders {
		wg.Go(func() {
			<-start
			reply, err := s.Acquire(context.Background(), s.request())
			if err != nil {
				t.Errorf("Acquire: %v", err)
			}
			outcomes[i] = reply.Outcome
		})
	}
	close(start)
	wg.Wait()
	winners := 0
	for _, o := range outcomes {
		if o == driver.Granted {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d contenders hold the name, want 1", winners, contenders)
	}
}

func testShared(t *testing.T, newDriver New) {
	a, b := newSubject(t, newDriver(t)), newSubject(t, newDriver(t))
	b.name = a.name
	holder := a.request()
	first := a.granted(holder)
	if !a.Capabilities().AcrossProcesses {
		b.granted(b.request())
		return
	}
	b.refused(b.request(), driver.Busy)
	if st := b.state(); !st.Held || st.Fence != first.Fence {
		t.Errorf("the other driver sees %+v", st)
	}
	a.release(holder, true)
	if second := b.granted(b.request()); second.Fence <= first.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", second.Fence, first.FenceEnd)
	}
}

func testNames(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	unique := randomHex()
	for _, name := range []driver.Name{
		{Namespace: "a", Key: unique + "b:c"}, {Namespace: "a:" + unique + "b", Key: "c"},
		{Namespace: "a", Key: unique + "{b}"}, {Namespace: "a", Key: unique + "{b"}, {Namespace: "a", Key: unique + "b}"},
		{Namespace: "a", Key: unique + "%7D"}, {Namespace: "a", Key: unique + "}"}, {Namespace: "a", Key: unique + "%"},
		{Namespace: "a", Key: unique + "%257D"},
		{Namespace: "a", Key: unique + "}:lock"}, {Namespace: "a", Key: unique + "}:fence"},
		{Namespace: "a", Key: unique + " "}, {Namespace: "a", Key: unique + "  "},
		{Namespace: "a", Key: unique + "ä"}, {Namespace: "a", Key: unique + "a\u0308"},
		{Namespace: "a", Key: unique + "x"}, {Namespace: "a", Key: unique + "X"},
		{Namespace: "a", Key: unique + `'"\$(x);--`},
		{Namespace: "a", Key: unique + "*"}, {Namespace: "a", Key: unique + "?"},
		{Namespace: "a", Key: unique + strings.Repeat("k", 1024-len(unique))},
		{Namespace: "a", Key: unique + strings.Repeat("k", 1023-len(unique))},
		{Namespace: strings.Repeat("n", 128), Key: unique},
	} {
		s.name = name
		req := s.request()
		s.granted(req)
		s.refused(s.request(), driver.Busy)
	}
}

func testNotBeforeTTL(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.expiring()
	sent := time.Now()
	s.granted(req)
	s.takenOver()
	if after := time.Since(sent); after < short-tick {
		t.Errorf("granted again after %s, before the TTL of %s", after, short)
	}
}
