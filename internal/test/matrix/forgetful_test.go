package matrix

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// keyAt is a key, beginning with prefix, that the same master keeps as it keeps another one.
func (s *service) keyAt(prefix, other string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(prefix, "-", i); s.postgres != nil || s.master(key) == s.master(other) {
			return key
		}
	}
}

// goesOn checks a session whose lock the service has lost. The next holder has it with a higher
// token, as soon as it asks. The old holder, in its turn, cannot write any more and is told within
// a TTL. b has the content of the session.
func goesOn(t *testing.T, old *turn, next *session, ttl time.Duration, b *book) {
	t.Helper()
	start := time.Now()
	following := next.begin(t)
	recovered(t, start, ttl)
	b.check(t, following.history(t, following.ctx))
	rises(t, old.lease.Fence(), following.lease.Fence())
	mark := following.lease.Fence()
	fence := old.lease.Fence()
	stale(t, old.key+": a Save of the old holder", old.saveUnchecked("stale"), fence, mark)
	stale(t, old.key+": a Clear of the old holder", old.store.Clear(old.unchecked()), fence, mark)
	b.mustSave(t, following.ctx, next, "after")
	lostWithin(t, old.lease, time.Until(start.Add(ttl)))
	wants(t, "Extend", old.lease.Extend(t.Context(), ttl), distlock.ErrLost)
	wants(t, "a Save that looks at its lease", old.save(old.ctx, "stale"), distlock.ErrLost)
	wants(t, "Turn", old.end(), distlock.ErrLost)
	following.mustEnd(t)
	b.mustSave(t, t.Context(), next, "outside")
	b.check(t, next.history(t, t.Context()))
}

// answered makes a call until the server answers it; of a Cluster, it may be 2 s before a node that
// was started takes writes.
func answered(call func() error) (err error) {
	servers.Within(time.Minute, func() bool {
		err = call()
		return !errors.Is(err, distlock.ErrOutcomeUnknown) && !errors.Is(err, distlock.ErrUnavailable)
	})
	return err
}

// A server that comes back without its data grants the lock to the next. Tokens rise by its clock.
// The session that it kept is gone, and its old holder cannot begin it anew. A session on another
// server is still there, and takes the token of the next holder, also if it is lower than one that
// the store has seen: then the holder gets a higher one.
func serverRestartedEmpty(t *testing.T, s *service) {
	const ttl = 4 * time.Second // a node of a Cluster takes no writes for 2 s
	holders, others := s.instance(t, withTTL(ttl)), s.instance(t, withTTL(ttl), withWait(ttl))
	elsewhere := startService(t, "node")
	holdersElsewhere, othersElsewhere := *holders, *others
	holdersElsewhere.client, othersElsewhere.client = elsewhere.client(t), elsewhere.client(t)

	key := s.keyAt("serverRestartedEmpty", "serverRestartedEmpty")
	besides := holders.session(key, false).begin(t)
	careful := holders.session(s.keyAt("serverRestartedEmpty-careful", key), false).begin(t)
	apart := holders.session(s.keyAt("serverRestartedEmpty-apart", key), true).begin(t)
	kept := holdersElsewhere.session(s.keyAt("serverRestartedEmpty-kept", key), false).begin(t)
	ahead := holdersElsewhere.session(s.keyAt("serverRestartedEmpty-ahead", key), false).begin(t)
	if err := fencing.RaiseToken(t.Context(), ahead.lease, ahead.lease.Fence()+time.Hour.Microseconds()); err != nil {
		t.Fatal(err)
	}
	books := make(map[*turn]*book)
	for _, old := range []*turn{besides, careful, apart, kept, ahead} {
		books[old] = new(book)
		books[old].mustSave(t, old.ctx, old.session, "before")
	}

	s.master(key).Restart()

	// The server has lost the session and the lock: only the owner of the lock may begin a session.
	fence := besides.lease.Fence()
	stale(t, "while the lock is free", answered(func() error { return besides.saveUnchecked("stale") }), fence, 0)
	stale(t, "Clear while the lock is free", besides.store.Clear(besides.unchecked()), fence, 0)
	_, err := besides.store.Load(besides.unchecked(), "")
	stale(t, "Load while the lock is free", err, fence, 0)
	s.absent(t, key)
	another := mustAcquire(t, others.beside, key)
	stale(t, "while another has the lock", besides.saveUnchecked("stale"), fence, 0)
	s.absent(t, key)
	mustRelease(t, another)
	wants(t, "a Save that looks at its lease", answered(func() error { return careful.save(careful.ctx, "stale") }), distlock.ErrLost)
	s.absent(t, careful.key)

	gone := 0
	for _, old := range []*turn{besides, careful, apart} {
		gone += books[old].forget(t, nil, 0)
	}
	t.Logf("the server has lost %d acknowledged exchanges, all that it had", gone)
	goesOn(t, besides, others.session(key, false), ttl, books[besides])
	goesOn(t, careful, others.session(careful.key, false), ttl, books[careful])
	goesOn(t, apart, others.session(apart.key, true), ttl, books[apart])
	goesOn(t, kept, othersElsewhere.session(kept.key, false), ttl, books[kept])
	lease := mustAcquire(t, others.beside, ahead.key)
	if lease.Fence() >= ahead.lease.Fence() {
		t.Errorf("fence %d after %d: the store sees nothing lower than it has seen", lease.Fence(), ahead.lease.Fence())
	}
	mustRelease(t, lease)
	goesOn(t, ahead, othersElsewhere.session(ahead.key, false), ttl, books[ahead])
}

// A replica that had not received the lock, nor the last exchanges, becomes the master. It has the
// first exchanges.
func failoverLosesTheLock(t *testing.T, s *service) {
	const ttl = 3 * time.Second
	holders, others := s.instance(t, withTTL(ttl)), s.instance(t, withTTL(ttl))
	key := s.keyAt("failoverLosesTheLock", "failoverLosesTheLock")
	sessions := []*session{holders.session(key, false), holders.session(s.keyAt(key+"-apart", key), true)}
	eager := holders.session(s.keyAt(key+"-eager", key), false)
	books := make(map[*session]*book)
	whole := func(x *session, text string) {
		t.Helper()
		turn := x.begin(t)
		_ = turn.history(t, turn.ctx)
		for _, n := range []string{"-1", "-2"} {
			books[x].mustSave(t, turn.ctx, x, text+n)
		}
		turn.mustEnd(t)
		books[x].mustSave(t, t.Context(), x, text+"-3")
	}
	const kept = 3
	for _, x := range append(sessions, eager) {
		books[x] = new(book)
		whole(x, "replicated")
	}
	failover := s.failover(key)
	failover.awaitReplicas()
	failover.detach()
	var turns []*turn
	for _, x := range append(sessions, eager) {
		whole(x, "forgotten")
		turn := x.begin(t)
		books[x].mustSave(t, turn.ctx, x, "forgotten-4")
		turns = append(turns, turn)
	}
	failover.kill()
	failover.awaitMaster()

	// Until another holder comes the old one may go on, also past its checks: behind the remaining
	// entries.
	turn := turns[2]
	retained := others.session(eager.key, false)
	var history []string
	if err := answered(func() (err error) {
		messages, err := retained.Load(t.Context(), "")
		history = exchanges(t, messages)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	gone, all := books[eager].forget(t, history, kept), len(history)
	if err := books[eager].note("went on", answered(func() error { return turn.saveUnchecked("went on") })); err != nil {
		t.Errorf("the holder that goes on: %v", err)
	}
	books[eager].check(t, retained.history(t, t.Context()))
	goesOn(t, turn, retained, ttl, books[eager])

	for i, x := range sessions {
		next := others.session(x.key, i == 1)
		history := next.history(t, t.Context())
		gone, all = gone+books[x].forget(t, history, kept), all+len(history)
		goesOn(t, turns[i], next, ttl, books[x])
	}
	t.Logf("the new master has retained %d exchanges; %d that were acknowledged are gone", all, gone)
	if gone == 0 {
		t.Error("nothing is gone, so this shows nothing")
	}
}
