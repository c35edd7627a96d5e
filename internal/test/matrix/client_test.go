package matrix

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The application has used up the pool of its client. The Locker has connections of its own.
func poolUsedUp(t *testing.T, s *service) {
	unlessStalled(t, "poolUsedUp", func(t testing.TB, key string) {
		const ttl = 2 * time.Second
		client := s.client(t, setting{redis: func(o *redis.UniversalOptions) {
			o.PoolSize, o.PoolTimeout, o.MaxRetries, o.ReadTimeout = 1, 200*time.Millisecond, -1, time.Minute
		}, postgres: func(c *pgxpool.Config) { c.MaxConns = 1 }})
		l := locker(t, client, distlock.Options{TTL: ttl})
		renewed, released := mustAcquire(t, l, key+"-renewed"), mustAcquire(t, l, key+"-released")

		end := s.useUp(t, client, renewed.Key(), released.Key(), key) // in a Cluster, at three nodes or fewer
		mustRelease(t, mustAcquire(t, l, key))
		if err := renewed.Extend(t.Context(), 2*ttl); err != nil {
			t.Errorf("Extend: %v", err)
		}
		start := time.Now()
		mustRelease(t, released)
		if !soon(start, time.Second) {
			t.Errorf("Release took %s", time.Since(start))
		}
		s.gone(t, released.Key())
		keeps(t, renewed, 3*ttl)
		end()
		mustRelease(t, renewed)
	})
}

// useUp takes the connections of a client to the servers of some keys.
func (s *service) useUp(t testing.TB, c client, names ...string) (end func()) {
	if c.postgres != nil {
		conn, err := c.postgres.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return conn.Release
	}
	var blocked sync.WaitGroup
	var taken []context.CancelFunc
	for _, name := range names {
		ctx, cancel := context.WithCancel(t.Context())
		taken = append(taken, cancel)
		blocked.Go(func() { _ = c.redis.BLPop(ctx, 0, "list:{"+name+"}").Err() })
		servers.Await(t, 5*time.Second, "the pool is used up", func() bool {
			return strings.Contains(mustDo(t, s.master(name), "CLIENT", "LIST"), "cmd=blpop")
		})
	}
	return func() {
		for _, name := range names {
			mustDo(t, s.master(name), "RPUSH", "list:{"+name+"}", "x", "x", "x")
		}
		for _, cancel := range taken {
			cancel()
		}
		blocked.Wait()
	}
}

// A user without a right gets an error at once that names the command. With all documented rights
// everything works; without those for notifications too, by polling in the queue.
func rightsMissing(t *testing.T, s *service) {
	const key = "rightsMissing"
	var documented []string
	for _, right := range servers.DocumentedRights(t, "../../../distlock/redislock/doc.go").Needed {
		if command, ok := strings.CutPrefix(right, "+"); ok {
			documented = append(documented, command)
		}
	}
	user := func(name, keys string, without string, more ...string) setting {
		rights := []string{"resetkeys", "~" + keys, "resetchannels", "-@all",
			// what go-redis asks for by itself
			"+hello", "+ping", "+cluster|slots", "+cluster|shards", "+command", "+readonly"}
		for _, command := range documented {
			if command != without {
				rights = append(rights, "+"+command)
			}
		}
		return s.user(t, name, append(rights, more...)...)
	}
	inOrder(t, s, user("complete", namespace+":*", "", "&"+namespace+":*", "+publish", "+subscribe"), key+"-complete", true)
	for name, more := range map[string][]string{
		"nothing-of-that":    {},
		"without-subscribe":  {"&" + namespace + ":*", "+publish"},
		"without-publish":    {"&" + namespace + ":*", "+subscribe"},
		"without-channels":   {"+publish", "+subscribe"},
		"with-other-channel": {"&other:*", "+publish", "+subscribe"},
	} {
		as := user(name, namespace+":*", "", more...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inOrder(t, s, as, key+"-"+name, false)
		})
	}

	for name, text := range map[string]string{
		"otherkeys": "keys", "without-evalsha": "evalsha", "without-get": "right", "without-set": "right", "without-time": "right",
	} {
		keys, without := namespace+":*", strings.TrimPrefix(name, "without-")
		if name == "otherkeys" {
			keys = "other:*"
		}
		l := locker(t, s.client(t, user(name, keys, without)), distlock.Options{Wait: 5 * time.Second})
		start := time.Now()
		_, err := l.Acquire(t.Context(), key)
		wants(t, name, err, distlock.ErrRefused)
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "ACL") || !soon(start, 2*time.Second) {
			t.Errorf("%s: %v after %s", name, err, time.Since(start))
		}
	}
	s.gone(t, key)

	// Whichever right is missing, in whichever of the steps: it works, or the error says what is
	// wrong. That is the same everywhere.
	if s.Node == nil {
		return
	}
	for _, missing := range documented {
		as := user("minus-"+missing, namespace+":*", missing)
		t.Run("minus-"+missing, func(t *testing.T) {
			t.Parallel()
			worksOrSaysWhy(t, s, as, key+"-minus-"+missing)
		})
	}
}

// worksOrSaysWhy takes every step of a lock with two Lockers that have all rights but one.
func worksOrSaysWhy(t *testing.T, s *service, as setting, key string) {
	const ttl = time.Second
	check := func(what string, err error, others ...error) {
		t.Helper()
		for _, other := range others {
			if errors.Is(err, other) {
				return
			}
		}
		if err != nil && (!errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), "ACL")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	opts := distlock.Options{TTL: ttl, Wait: 200 * time.Millisecond}
	one, other := locker(t, s.client(t, as), opts), locker(t, s.client(t, as), opts)
	lease, err := one.Acquire(t.Context(), key)
	check("Acquire", err)
	if err != nil {
		s.gone(t, key)
		return
	}
	_, err = other.Acquire(t.Context(), key)
	check("a waiter that leaves", err, distlock.ErrNotAcquired)
	check("Extend", lease.Extend(t.Context(), ttl))
	before, _ := s.asked(waiters, key) // one that may not leave the queue is still there
	next := make(chan error, 1)
	go func() {
		lease, err := other.Acquire(t.Context(), key, distlock.WithWait(2*ttl))
		if err == nil {
			err = lease.Release(t.Context())
		}
		next <- err
	}()
	servers.Await(t, 5*time.Second, "a waiter in the queue, if it may wait", func() bool {
		reply, err := s.asked(waiters, key)
		return len(next) > 0 || err == nil && reply != before
	})
	check("Release", lease.Release(t.Context()))
	check("the next", <-next)
	s.awaitAnswer(t, 2*ttl, "0", key, isHeld)
}

// inOrder has two waiters queue, and checks that they have the lock in their order; at once with
// notifications. Without them, each Locker logs that once.
func inOrder(t *testing.T, s *service, as setting, key string, notified bool) {
	t.Helper()
	var logs [3]strings.Builder
	var lockers [3]*distlock.Locker
	for i := range lockers {
		lockers[i] = locker(t, s.client(t, as), distlock.Options{Wait: -1, Logger: slog.New(slog.NewTextHandler(&logs[i], nil))})
	}
	for range 2 {
		holder := mustAcquire(t, lockers[0], key)
		if _, err := lockers[1].TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("%s: a second lock: %v", key, err)
		}
		first := enqueue(t, s, lockers[1], key, 1)
		second := enqueue(t, s, lockers[2], key, 2)
		if err := holder.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("%s: Extend: %v", key, err)
		}
		limit := 250*time.Millisecond + prompt*4 // a waiter polls this often
		if notified {
			limit = 4 * prompt
		}
		for _, w := range []*waiting{first, second} {
			mustRelease(t, holder)
			start := time.Now()
			next := w.lease(limit + time.Second)
			recovered(t, start, limit)
			rises(t, holder.Fence(), next.Fence())
			holder = next
			if w == first {
				second.still()
			}
		}
		mustRelease(t, holder)
	}
	s.gone(t, key)
	s.queueGone(t, key)
	for i := range logs {
		if err := lockers[i].Close(t.Context()); err != nil { // waits for the log
			t.Error(err)
		}
		want := 1
		if notified || i == 0 { // a try that does not wait is not notified
			want = 0
		}
		if text := logs[i].String(); strings.Count(text, "cannot notify") != want || strings.Count(text, "\n") != want {
			t.Errorf("%s: Locker %d says %q, want %d warnings", key, i, text, want)
		}
	}
}
