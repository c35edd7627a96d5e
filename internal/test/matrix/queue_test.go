package matrix

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// check bounds the time until a waiter in the queue asks by itself, if its TTL is long: 5 s. A TTL
// below 10 s halves.
const check = 5 * time.Second

// waiting is an Acquire in the queue.
type waiting struct {
	tb   testing.TB
	done chan struct{}
	got  *distlock.Lease
	err  error
	at   time.Time // when it was done
}

// enqueue begins an Acquire, and returns when it is the n-th in the queue.
func enqueue(tb testing.TB, s *service, l *distlock.Locker, key string, n int) *waiting {
	tb.Helper()
	w := &waiting{tb: tb, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.got, w.err = l.Acquire(context.Background(), key)
		w.at = time.Now()
	}()
	s.awaitWaiters(tb, key, n)
	return w
}

// lease waits for at most limit.
func (w *waiting) lease(limit time.Duration) *distlock.Lease {
	w.tb.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
		if w.err != nil {
			w.tb.Fatalf("the waiter's Acquire: %v", w.err)
		}
		return w.got
	case <-timer.C:
		w.tb.Fatalf("the waiter has no lock after %s", limit)
		return nil
	}
}

// still checks that it has not got the lock yet.
func (w *waiting) still() {
	w.tb.Helper()
	select {
	case <-w.done:
		w.tb.Errorf("it was not its turn: %v, %v", w.got, w.err)
	default:
	}
}

// A waiter is killed. The others have the lock in their order, when its claim is due at the latest.
func waiterDies(which string) func(*testing.T, *service) {
	return func(t *testing.T, s *service) {
		const ttl = 2 * time.Second
		key := "waiterDies-" + which
		l := s.locker(t)
		holder := mustAcquire(t, l, key)
		var queue []*peer
		for n := range 3 {
			queue = append(queue, startChild(t, "lock", order{URL: s.URL(), Key: key, TTL: ttl}))
			s.awaitWaiters(t, key, n+1)
		}
		dead, others := queue[0], queue[1:]
		fence, start := holder.Fence(), time.Now()
		switch which {
		case "head":
			dead.Kill()
			mustRelease(t, holder)
		case "middle":
			dead, others = queue[1], []*peer{queue[0], queue[2]}
			dead.Kill()
			mustRelease(t, holder)
		case "afterHandoff":
			dead.must(dead.Pause()) // so that it cannot know
			mustRelease(t, holder)
			info, err := l.Inspect(t.Context(), key)
			if err != nil || info.Fence <= holder.Fence() || info.Waiters != 2 {
				t.Fatalf("the lock had no handoff: %+v, %v", info, err)
			}
			fence = info.Fence
			start = time.Now()
			dead.Kill()
		}
		for _, c := range others {
			c.holds()
			recovered(t, start, ttl+time.Second)
			rises(t, fence, c.fence)
			fence, start = c.fence, time.Now()
			c.release()
		}
		s.gone(t, key)
		s.queueGone(t, key)
	}
}

// The notice of a handoff is lost with the connection for notifications: the waiter asks as soon as
// it is connected again. If the lock expires without a notice, the waiter asks when the holder's
// TTL has passed, or its own time is up.
func wakeUpLost(t *testing.T, s *service) {
	const key = "wakeUpLost"
	network := faultnet.NewNet(t)
	holders := s.locker(t)
	far := s.locker(t, dialedBy(network.Dial), forever)
	holder := mustAcquire(t, holders, key)
	w := enqueue(t, s, far, key, 1)
	network.Refuse()
	mustRelease(t, holder)
	if info, err := holders.Inspect(t.Context(), key); err != nil || info.Fence <= holder.Fence() {
		t.Fatalf("the lock had no handoff: %+v, %v", info, err)
	}
	w.still()
	network.Heal()
	start := time.Now()
	next := w.lease(check)
	recovered(t, start, 2*time.Second)
	mustRelease(t, next)

	var judges []func()
	for name, d := range map[string]struct{ holder, waiter, limit time.Duration }{ // all at once: they are independent
		"the holder's TTL passes":  {holder: time.Second, waiter: 30 * time.Second, limit: time.Second},
		"the waiter's time is up":  {holder: 30 * time.Second, waiter: 2 * time.Second, limit: time.Second},
		"the waiter's time is cut": {holder: 30 * time.Second, waiter: 30 * time.Second, limit: check},
	} {
		key := key + strings.ReplaceAll(name, " ", "-")
		lease := mustAcquire(t, s.locker(t, withTTL(d.holder)), key)
		w := enqueue(t, s, s.locker(t, withTTL(d.waiter), forever), key, 1)
		s.mustAsk(t, expire, key)
		start := time.Now()
		judges = append(judges, func() {
			next := w.lease(2 * check)
			t.Log(name)
			recoveredAt(t, start, w.at, d.limit+time.Second/2)
			rises(t, lease.Fence(), next.Fence())
			wants(t, "the old holder's Release", lease.Release(t.Context()), distlock.ErrLost)
			mustRelease(t, next)
		})
	}
	for _, judge := range judges {
		judge()
	}
}

// The master dies with waiters in a queue that its replica has. They ask the new master, and have
// the lock in their order. A waiter that comes later than its alive-until, after a slow failover,
// loses its place.
func failoverKeepsTheQueue(t *testing.T, s *service) {
	const key, ttl = "failoverKeepsTheQueue", 20 * time.Second
	opts := []setting{withTTL(ttl), forever, renewing(500 * time.Millisecond)}
	holder := mustAcquire(t, s.locker(t, opts...), key)
	var queue []*waiting
	for n := range 3 {
		queue = append(queue, enqueue(t, s, s.locker(t, opts...), key, n+1))
	}
	failover := s.failover(key)
	failover.awaitReplicas()
	before := s.requests(key)
	failover.kill()
	failover.awaitMaster()
	var after map[string]int
	if !servers.Within(2*check, func() bool {
		after = s.requests(key)
		n := 0
		for owner, seq := range after {
			if seq > before[owner] {
				n++
			}
		}
		return n == len(queue)
	}) {
		t.Fatalf("the queue had %v, and after the failover %v", before, after)
	}
	if err := holder.Release(t.Context()); err != nil {
		wantsWrite(t, "Release", err) // it goes on in the background
	}
	start, fence := time.Now(), holder.Fence()
	for i, w := range queue {
		lease := w.lease(ttl)
		for _, later := range queue[i+1:] {
			later.still()
		}
		rises(t, fence, lease.Fence())
		fence = lease.Fence()
		if err := lease.Release(t.Context()); err != nil {
			wantsWrite(t, "Release", err)
		}
	}
	recovered(t, start, check)
	s.gone(t, key)
}

// requests is how often each waiter has asked.
func (s *service) requests(key string) map[string]int {
	reply, err := s.asked(waiterRows, key)
	if err != nil {
		return nil
	}
	seqs := make(map[string]int)
	words := strings.Fields(reply)
	for i := 0; i+1 < len(words); i += 2 {
		if parts := strings.Split(words[i+1], ":"); len(parts) > 1 {
			seqs[words[i]], _ = strconv.Atoi(parts[1])
		}
	}
	return seqs
}

// waits is an operation that can be cancelled half-way: to queue for a lock that its holder then
// releases.
func waits(s *service) operation {
	return func(ctx context.Context, l *distlock.Locker, held *distlock.Lease, key string) (*distlock.Lease, error) {
		waiting, over := context.WithCancel(ctx)
		go func() {
			servers.Within(10*time.Second, func() bool {
				reply, err := s.asked(waiters, key)
				return waiting.Err() != nil || err == nil && reply == "1"
			})
			if waiting.Err() == nil {
				_ = held.Release(context.Background()) // the caller does that again, and looks at the error
			}
		}()
		lease, err := l.Acquire(ctx, key, distlock.WithWait(-1))
		over()
		return lease, err
	}
}

// recordDeleted: the record of a lock is deleted while another client waits. Tokens rise, the holder
// learns of its loss, and the waiter is not left behind. Its queue outlives the record, and a
// newcomer overtakes it once.
func recordDeleted(t *testing.T, s *service) {
	const key, ttl = "recordDeleted", 2 * time.Second
	opts := []setting{withTTL(ttl), forever}
	lost := mustAcquire(t, s.locker(t, opts...), key)
	waiter := enqueue(t, s, s.locker(t, opts...), key, 1)
	s.mustAsk(t, deleteRecord, key)
	newcomer, err := s.locker(t, withTTL(time.Minute)).TryAcquire(t.Context(), key)
	if err != nil {
		if !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatal(err)
		}
		newcomer = waiter.lease(time.Second) // it has asked in between
	} else {
		s.awaitAnswer(t, ttl/2+time.Second, "b2H", key, recordOfQueue)
	}
	rises(t, lost.Fence(), newcomer.Fence())
	lostWithin(t, lost, ttl)
	mustRelease(t, newcomer)
	if next := waiter.lease(ttl); next != newcomer {
		rises(t, newcomer.Fence(), next.Fence())
		mustRelease(t, next)
	}
	s.gone(t, key)
	s.expires(t, key)
}

// With the documented rights, and those that go-redis needs on a Cluster, everything works; without
// those for notifications too, by polling in the queue. The tests of drivers have the other rights.
func rightsMissing(t *testing.T, s *service) {
	rights := []string{"resetkeys", "~" + namespace + ":*", "resetchannels", "-@all",
		"+hello", "+ping", "+cluster|slots", "+cluster|shards", "+command", "+readonly"} // go-redis itself
	for _, right := range servers.DocumentedRights(t, "../../../distlock/redislock/doc.go").Needed {
		if strings.HasPrefix(right, "+") {
			rights = append(rights, right)
		}
	}
	silent := s.user(t, "silent", rights...)
	inOrder(t, s, silent, "rightsMissing-silent", 250*time.Millisecond+4*prompt) // a waiter polls this often
	notified := s.user(t, "notified", slices.Concat(rights, []string{"&" + namespace + ":*", "+publish", "+subscribe"})...)
	inOrder(t, s, notified, "rightsMissing-notified", 4*prompt)
}

// inOrder has two waiters queue, and checks that they have the lock in their order, each within a limit.
func inOrder(t *testing.T, s *service, as setting, key string, limit time.Duration) {
	t.Helper()
	holder := mustAcquire(t, s.locker(t, as), key)
	first, second := enqueue(t, s, s.locker(t, as, forever), key, 1), enqueue(t, s, s.locker(t, as, forever), key, 2)
	if err := holder.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("%s: Extend: %v", key, err)
	}
	for _, w := range []*waiting{first, second} {
		mustRelease(t, holder)
		start := time.Now()
		next := w.lease(limit + time.Second)
		recovered(t, start, limit)
		rises(t, holder.Fence(), next.Fence())
		if holder = next; w == first {
			second.still()
		}
	}
	mustRelease(t, holder)
	s.gone(t, key)
	s.queueGone(t, key)
}
