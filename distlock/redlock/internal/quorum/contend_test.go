package quorum_test

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

var rounds = flag.Int("rounds", 40, "how many rounds the contenders have")

// Each contender has a driver of its own, and each request is under way for another time.
func TestAcquire_L_oneOf32ContendersWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := newServers(5)
		drivers := make([]driver.Driver, 32)
		for i := range drivers {
			drivers[i] = ready(t, servers)
		}
		for _, s := range servers {
			s.inject(spread())
		}
		for round := range *rounds {
			var winners atomic.Int32
			var all sync.WaitGroup
			for _, d := range drivers {
				all.Go(func() {
					req := newRequest()
					reply, err := d.Acquire(t.Context(), req)
					if err != nil {
						t.Error(err)
					}
					if reply.Outcome == driver.Granted {
						winners.Add(1)
						time.Sleep(100 * time.Millisecond)
						release(t, d, req)
					}
				})
			}
			all.Wait()
			if winners.Load() != 1 {
				t.Errorf("round %d has %d winners", round, winners.Load())
			}
			time.Sleep(time.Second)
		}
	})
}

// spread delays the requests of a node by up to a millisecond, each by another time.
func spread() func(request) fault {
	next := 0
	return func(request) fault {
		next = (next*5 + 3) % 1021
		return fault{hold: after(time.Duration(1+next) * time.Microsecond)}
	}
}

func newLocker(t *testing.T, servers []*server) *distlock.Locker {
	t.Helper()
	l, err := distlock.New(connect(servers, -1), &distlock.Options{TTL: 3 * time.Second, Wait: time.Minute, Namespace: name.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func locked(t *testing.T, l *distlock.Locker) *distlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), name.Key)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestLocker_renewsBesideADeadNode(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		lease := locked(t, newLocker(t, servers))
		for _, s := range servers { // one after the other
			s.fails(driver.ErrNotDone)
			time.Sleep(10 * time.Second)
			if err := lease.Err(); err != nil {
				t.Fatalf("the lease is lost with one node away: %v", err)
			}
			s.fails(nil)
			time.Sleep(5 * time.Second)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLocker_handsOffInTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		l := newLocker(t, servers)
		first := locked(t, l)
		n := 0
		next := make(chan *distlock.Lease)
		go func() { next <- locked(t, l) }()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		n = len(servers[0].requests("acquire"))
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		second := <-next
		if second.Fence() != first.Fence()+1 || len(servers[0].requests("acquire")) != n {
			t.Errorf("the token %d after %d, with %d requests", second.Fence(), first.Fence(), len(servers[0].requests("acquire"))-n)
		}
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLocker_N_lossBeforeAnotherHolds(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		here, there := newLocker(t, servers), newLocker(t, servers)
		lease := locked(t, here)
		synctest.Wait()
		servers[0].fails(errLost)
		servers[1].fails(errLost)
		time.Sleep(2 * time.Second)
		if lease.Err() != nil {
			t.Fatal("lost before its deadline")
		}
		other := make(chan *distlock.Lease, 1)
		go func() {
			<-lease.Context().Done()
			servers[0].fails(nil)
			servers[1].fails(nil)
			for {
				if lease, err := there.Acquire(t.Context(), name.Key); err == nil {
					other <- lease
					return
				}
			}
		}()
		next := <-other
		if lease.Err() == nil || next.Fence() <= lease.Fence() {
			t.Errorf("the first lease: %v; tokens %d, then %d", lease.Err(), lease.Fence(), next.Fence())
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLocker_otherProcess_wokenByTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		here, there := newLocker(t, servers), newLocker(t, servers)
		lease := locked(t, here)
		next := make(chan *distlock.Lease)
		go func() { next <- locked(t, there) }()
		time.Sleep(700 * time.Millisecond)
		start := time.Now()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		second := <-next
		if took := time.Since(start); took > 3*time.Millisecond {
			t.Errorf("the waiter had the lock %s after the release", took)
		}
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
