package matrix

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// outage is a way in which a node is down.
type outage struct {
	begin, end func(*servers.Redis)
}

var (
	killed  = outage{(*servers.Redis).Kill, (*servers.Redis).Restart} // it refuses connections
	stopped = outage{(*servers.Redis).Pause, (*servers.Redis).Resume} // it hangs
)

// unhindered is how long a call may take while a minority of the nodes is down.
const unhindered = 250 * time.Millisecond

// nodesDown: one node more is down each time. With a quorum of nodes, all calls succeed at once.
// Without a quorum, calls fail with the cause of each node, and holders are told within a TTL.
func nodesDown(how outage) func(*testing.T, *service) {
	return func(t *testing.T, s *service) {
		const ttl = 3 * time.Second
		nodes := s.Nodes()
		minority := len(nodes) - s.Quorum.Size()
		opts := []setting{withTTL(ttl), renewing(ttl / 10)}
		l, other := s.locker(t, opts...), s.locker(t, opts...)
		kept := mustAcquire(t, l, "kept")
		for down, node := range nodes {
			how.begin(node)
			if down < minority {
				goesOnWithout(t, s, l, other, kept)
				continue
			}
			start := time.Now()
			lostWithin(t, kept, ttl)
			if down == minority {
				t.Logf("the holder was told %s after a majority was down", time.Since(start).Round(time.Millisecond))
				unavailableWithout(t, l, longestCall+time.Second/2, nodes[:down+1])
			}
			for _, l := range []*distlock.Locker{l, s.locker(t, opts...)} { // with and without connections
				unavailableWithout(t, l, time.Second/2, nil)
			}
		}
		for _, node := range nodes {
			how.end(node)
		}
		next, err := other.Acquire(t.Context(), kept.Key(), distlock.WithWait(2*ttl))
		if err != nil {
			t.Fatalf("when all nodes are back: %v", err)
		}
		rises(t, kept.Fence(), next.Fence())
		mustRelease(t, next)
		for _, key := range []string{next.Key(), "down", "free-connected-0", "free-new-0"} {
			s.gone(t, key)
		}
	}
}

// goesOnWithout makes every call while a minority of the nodes is down.
func goesOnWithout(t *testing.T, s *service, l, other *distlock.Locker, kept *distlock.Lease) {
	t.Helper()
	for what, l := range map[string]*distlock.Locker{"connected": l, "new": s.locker(t)} {
		unlessStalled(t, "free-"+what, func(t testing.TB, key string) {
			start := time.Now()
			lease := mustAcquire(t, l, key)
			if !soon(start, unhindered) {
				t.Errorf("%s: Acquire took %s", what, time.Since(start))
			}
			if _, err := other.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("%s: another client: %v", what, err)
			}
			start = time.Now()
			if err := lease.Extend(t.Context(), time.Minute); err != nil || !soon(start, unhindered) {
				t.Errorf("%s: Extend: %v after %s", what, err, time.Since(start))
			}
			waiting := make(chan *distlock.Lease, 1)
			go func() {
				next, err := other.Acquire(t.Context(), key, distlock.WithWait(-1))
				if err != nil {
					t.Errorf("%s: the waiter: %v", what, err)
				}
				waiting <- next
			}()
			if servers.Within(100*time.Millisecond, func() bool { return len(waiting) > 0 }) {
				t.Errorf("%s: a waiter has the lock that is held", what)
			}
			start = time.Now()
			mustRelease(t, lease)
			if !soon(start, unhindered) {
				t.Errorf("%s: Release took %s", what, time.Since(start))
			}
			next := <-waiting
			recovered(t, start, 2*unhindered)
			rises(t, lease.Fence(), next.Fence())
			mustRelease(t, next)
		})
	}
	if err := kept.Err(); err != nil {
		t.Errorf("the lease that is renewed: %v", err)
	}
}

// longestCall is how long a call of a node lasts at most.
const longestCall = 2 * time.Second

// unavailableWithout checks that an acquisition fails when its wait is over, and names the nodes.
func unavailableWithout(t *testing.T, l *distlock.Locker, wait time.Duration, down []*servers.Redis) {
	t.Helper()
	start := time.Now()
	_, err := l.Acquire(t.Context(), "down", distlock.WithWait(wait))
	wants(t, "Acquire", err, distlock.ErrUnavailable)
	if err == nil || !soon(start, wait) {
		t.Fatalf("Acquire: %v after %s", err, time.Since(start))
	}
	for _, node := range down {
		if !strings.Contains(err.Error(), node.Addr()) {
			t.Errorf("Acquire: %v; it does not name %s", err, node.Addr())
		}
	}
}

// byQuorum returns a turn that only a quorum of the nodes knows of. All other nodes are down, and
// the holder is cut off from all nodes until heal.
func byQuorum(t *testing.T, s *service, key string, ttl time.Duration) (old *turn, heal func()) {
	t.Helper()
	nodes := s.Nodes()
	network := faultnet.NewNet(t)
	in := s.instance(t, withTTL(ttl), dialedBy(network.Dial))
	if err := answered(func() error { // all nodes count
		lease, err := in.apart.TryAcquire(t.Context(), key)
		return errors.Join(err, lease.Release(t.Context()))
	}); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes[s.Quorum.Size():] {
		node.Kill()
	}
	old = in.session(key, true).begin(t)
	s.awaitHolding(t, nodes[:s.Quorum.Size()], key)
	for _, addr := range s.Addrs() {
		network.Only(addr).Cut()
	}
	return old, network.Heal
}

// restartEmpty starts so many nodes anew that the rest is no quorum: all that were down, and one
// that had granted locks.
func restartEmpty(s *service) {
	var restarting sync.WaitGroup
	for _, node := range s.Nodes()[s.Quorum.Size()-1:] {
		restarting.Go(node.Restart)
	}
	restarting.Wait()
}

// nodesRestartedEmpty: most nodes are back without their data, and do not know of a lock. They do
// not count before the TTL of each lock is over, so no other client gets it.
func nodesRestartedEmpty(t *testing.T, s *service) {
	const key, ttl = "nodesRestartedEmpty", 2 * time.Second
	s.beside.restartDelay = ttl
	old, heal := byQuorum(t, s, key, ttl)
	start := time.Now()
	restartEmpty(s)
	if err := old.lease.Err(); err != nil {
		t.Fatalf("the lease was over before the nodes were back, so this shows nothing: %v", err)
	}
	others := s.instance(t, withTTL(ttl), withWait(ttl))
	servers.Await(t, 10*ttl, "another client has the lock", func() bool {
		lease, err := others.apart.TryAcquire(t.Context(), key)
		if err == nil && old.lease.Err() == nil {
			t.Error("two clients hold the lock")
		}
		return err == nil && lease.Release(t.Context()) == nil
	})
	recovered(t, start, ttl+3*time.Second) // a server counts its time in whole seconds
	overtaken(t, old, others.session(key, true).begin(t), heal)
}

// overtaken checks that the store refuses a holder that was cut off, once the next turn has saved.
func overtaken(t *testing.T, old, next *turn, heal func()) {
	t.Helper()
	b := new(book)
	rises(t, old.lease.Fence(), next.lease.Fence())
	b.mustSave(t, next.ctx, next.session, "next")
	heal()
	stale(t, "a Save of the old holder", old.saveUnchecked("stale"), old.lease.Fence(), next.lease.Fence())
	lostWithin(t, old.lease, check)
	wants(t, "Turn", old.end(), distlock.ErrLost)
	next.mustEnd(t)
	b.check(t, next.history(t, t.Context()))
}

// nodesRestartedWithoutDelay: the same without RestartDelay. Then another client gets the lock
// while it is held, and the store refuses the older holder. A token may be lower than one that the
// store has seen, and the holder gets a higher one.
func nodesRestartedWithoutDelay(t *testing.T, s *service) {
	const key, ttl = "nodesRestartedWithoutDelay", 4 * time.Second
	others := s.instance(t, withTTL(ttl), withWait(ttl))
	ahead := others.session(key+"-ahead", true).begin(t)
	if err := fencing.RaiseToken(t.Context(), ahead.lease, ahead.lease.Fence()+time.Hour.Microseconds()); err != nil {
		t.Fatal(err)
	}
	seen := new(book)
	seen.mustSave(t, ahead.ctx, ahead.session, "before")
	highest := ahead.lease.Fence()
	ahead.mustEnd(t)

	old, heal := byQuorum(t, s, key, ttl)
	restartEmpty(s)
	next := others.session(key, true).begin(t)
	if err := old.lease.Err(); err != nil {
		t.Errorf("the lease was over before another client had it, so this shows nothing: %v", err)
	}
	overtaken(t, old, next, heal)

	for _, node := range s.Nodes()[:s.Quorum.Size()-1] { // which know the token, as the Lockers so far do
		node.Kill()
	}
	others = s.instance(t, withTTL(ttl), withWait(ttl))
	lease := mustAcquire(t, others.apart, ahead.key)
	if lease.Fence() >= highest {
		t.Errorf("fence %d after %d: the nodes have kept their tokens", lease.Fence(), highest)
	}
	mustRelease(t, lease)
	again := others.session(ahead.key, true).begin(t)
	seen.check(t, again.history(t, again.ctx))
	rises(t, highest, again.lease.Fence())
	seen.mustSave(t, again.ctx, again.session, "after")
	again.mustEnd(t)
	seen.check(t, again.history(t, t.Context()))
}

// grantsEnd: grants end too early, as by the step of a clock. A minority of nodes gets the lock
// back from its holder. Without a majority, another client gets the lock, and the store refuses the
// old holder.
func grantsEnd(t *testing.T, s *service) {
	const key, ttl = "grantsEnd", 3 * time.Second
	opts := []setting{withTTL(ttl), renewing(ttl / 10)}
	in, others := s.instance(t, opts...), s.instance(t, opts...)
	nodes := s.Nodes()
	minority := nodes[s.Quorum.Size():]
	end := func(nodes []*servers.Redis) {
		for _, node := range nodes {
			mustDo(t, node, expire.node(key)...)
		}
	}
	old, b := in.session(key, true).begin(t), new(book)
	b.mustSave(t, old.ctx, old.session, "before")
	s.awaitHolding(t, nodes, key)
	for range 3 {
		end(minority)
		if _, err := others.apart.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatalf("another client: %v", err)
		}
		s.awaitHolding(t, nodes, key)
	}
	if err := old.lease.Err(); err != nil {
		t.Errorf("the holder: %v", err)
	}
	end(nodes[len(minority):])
	goesOn(t, old, others.session(key, true), ttl, b)
}
