package matrix

import (
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// serverCrashes: the server is killed with all its processes, and comes back. What it has
// acknowledged is there: a lease, and an exchange.
func serverCrashes(t *testing.T, s *service) {
	const key, ttl = "serverCrashes", 20 * time.Second
	opts := []setting{withTTL(ttl), renewing(ttl / 10), forever}
	in := s.instance(t, opts...)
	b := new(book)
	turn := in.session(key+"-session", false).begin(t)
	lease := mustAcquire(t, in.beside, key)
	waiter := enqueue(t, s, s.locker(t, opts...), key, 1)
	b.mustSave(t, turn.ctx, turn.session, "before")
	s.postgres.server.Kill()
	s.postgres.server.Restart()

	_, err := s.locker(t).TryAcquire(t.Context(), key)
	wants(t, "TryAcquire", err, distlock.ErrNotAcquired)
	if err := answered(func() error { return lease.Extend(t.Context(), ttl) }); err != nil {
		t.Errorf("Extend: %v", err)
	}
	waiter.still()
	if err := lease.Release(t.Context()); err != nil { // the connection may be one from before
		wantsWrite(t, "Release", err) // it goes on in the background
	}
	start := time.Now()
	next := waiter.lease(2 * check)
	recovered(t, start, check+time.Second)
	rises(t, lease.Fence(), next.Fence())
	mustRelease(t, next)
	if err := b.note("after", answered(func() error { return turn.save(turn.ctx, "after") })); err != nil {
		t.Errorf("Save: %v", err)
	}
	turn.mustEnd(t)
	b.check(t, turn.history(t, t.Context()))
}

// poolerRestarted: a PgBouncer in transaction mode, which delivers no notifications, is restarted.
// Waiters poll, and leases stay.
func poolerRestarted(t *testing.T, s *service) {
	const key, ttl = "poolerRestarted", 2 * time.Second
	pooler := servers.StartPgBouncer(t, s.postgres.server, "transaction")
	s.postgres.url = pooler.URL(s.postgres.database.Name())
	kept := mustAcquire(t, s.locker(t, withTTL(ttl), renewing(ttl/10)), key+"-kept")
	load := newContenders(t, s, 4)
	load.begin(key, distlock.ErrUnavailable, distlock.ErrOutcomeUnknown)
	for range 3 {
		n := load.turns.Load()
		servers.Await(t, 30*time.Second, "turns between two restarts", func() bool { return load.turns.Load() > n+10 })
		pooler.Restart()
	}
	load.end()
	keeps(t, kept, ttl)
	for range 3 {
		waiter := enqueue(t, s, s.locker(t, withTTL(time.Minute), forever), kept.Key(), 1)
		before := kept.Fence()
		mustRelease(t, kept)
		start := time.Now()
		kept = waiter.lease(check)
		recovered(t, start, time.Second)
		rises(t, before, kept.Fence())
	}
	mustRelease(t, kept)
	s.gone(t, key)
}
