package faultmatrix

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
)

// namespace is that of all locks of these tests.
const namespace = "faults"

// topologies are those of Redis, and PostgreSQL without and with a standby.
var topologies = append(slices.Clone(testservers.Topologies), "postgres", "standby")

// service is a running Redis of some topology, or a PostgreSQL.
type service struct {
	Name                  string // one of topologies
	*testservers.Topology        // of Redis; nil: PostgreSQL
	postgres              *postgres
}

func startService(tb testing.TB, topology string, args ...string) *service {
	tb.Helper()
	switch topology {
	case "postgres":
		return startPostgres(tb, args...)
	case "standby":
		return startPair(tb, args...)
	}
	return &service{Name: topology, Topology: testservers.StartTopology(tb, topology, args...)}
}

// target is where a process finds the service.
type target struct {
	Addrs      []string
	MasterName string
	Postgres   string // the URL; empty: Redis
}

func (s *service) target() target {
	if s.postgres != nil {
		return target{Postgres: s.postgres.url}
	}
	return target{Addrs: s.Addrs(), MasterName: s.MasterName()}
}

// URL is for lockurl.
func (s *service) URL() string {
	if s.postgres != nil {
		return s.postgres.url
	}
	return s.Topology.URL()
}

// client is an application's client of the service.
type client struct {
	redis    redis.UniversalClient
	postgres *pgxpool.Pool // nil: Redis
}

// setting changes the options of a client. Nil changes nothing.
type setting struct {
	redis    func(*redis.UniversalOptions)
	postgres func(*pgxpool.Config)
}

// open makes a client.
func (t target) open(with ...setting) (client, error) {
	if t.Postgres != "" {
		return openPostgres(t.Postgres, with)
	}
	options := redis.UniversalOptions{Addrs: t.Addrs, MasterName: t.MasterName, ContextTimeoutEnabled: true}
	for _, change := range with {
		if change.redis != nil {
			change.redis(&options)
		}
	}
	return client{redis: redis.NewUniversalClient(&options)}, nil
}

func (c client) close() {
	if c.postgres != nil {
		c.postgres.Close()
		return
	}
	_ = c.redis.Close()
}

// client makes a client that the test closes.
func (s *service) client(tb testing.TB, with ...setting) client {
	tb.Helper()
	c, err := s.target().open(with...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.close)
	return c
}

// master is the node that keeps the lock on key now.
func (s *service) master(key string) *testservers.Redis { return s.Master(lockKey(key)) }

// lockKey is where Redis keeps the lock on key, which needs no escaping.
func lockKey(key string) string { return namespace + ":{" + key + "}:lock" }

// queueKey and waitersKey are where it keeps who waits for it.
func queueKey(key string) string   { return namespace + ":{" + key + "}:queue" }
func waitersKey(key string) string { return namespace + ":{" + key + "}:waiters" }

func tombstonesKey(key string) string { return namespace + ":{" + key + "}:tombstones" }

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func dialedBy(dial dialer) setting {
	return setting{
		redis:    func(o *redis.UniversalOptions) { o.Dialer = dial },
		postgres: func(c *pgxpool.Config) { c.ConnConfig.DialFunc = dial },
	}
}

// ofRedis is a setting of a client of Redis.
func ofRedis(change func(*redis.UniversalOptions)) setting { return setting{redis: change} }

// calls is what each request about a lock contains, and acquires what those contain that may grant it.
func (s *service) calls() string {
	if s.postgres != nil {
		return "_v1("
	}
	return "evalsha"
}

func (s *service) acquires() string {
	if s.postgres != nil {
		return "acquire_v1("
	}
	return `{"h":`
}

// named is what a request about a key contains.
func (s *service) named(key string) string {
	if s.postgres != nil {
		return key
	}
	return "{" + key + "}:"
}

// listener is the setting of a client whose notifications dropListener interrupts.
func (s *service) listener(tb testing.TB, name string) setting {
	if s.postgres != nil {
		return setting{postgres: func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = name }}
	}
	return s.user(tb, name, "~*", "&*", "+@all")
}

// silent is the setting of a client whose notifications of others fail.
func (s *service) silent(tb testing.TB) (*service, setting) {
	tb.Helper()
	if s.postgres != nil {
		return s.postgres.silent(tb)
	}
	return s, s.user(tb, "silent", "~*", "&*", "+@all", "-publish")
}

func (s *service) dropListener(tb testing.TB, name string) {
	tb.Helper()
	if s.postgres == nil {
		s.everywhere(tb, "CLIENT", "KILL", "TYPE", "pubsub", "USER", name)
		return
	}
	// A connection that listens holds an advisory lock of pglock.
	n, err := s.postgres.database.Do("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity JOIN pg_locks USING (pid) " +
		"WHERE application_name = '" + name + "' AND locktype = 'advisory' AND classid = 1818586987")
	if err != nil || n != "1" {
		tb.Errorf("%s connections that listen were closed, %v; want 1", n, err)
	}
}

// failover is the replacement of the server of a key.
type failover struct {
	awaitReplicas, detach, kill, awaitMaster func()
}

func (s *service) failover(key string) failover {
	if s.postgres != nil {
		return s.postgres.failover()
	}
	old := s.master(key)
	return failover{
		awaitReplicas: func() { s.AwaitReplicas(old) }, detach: old.Detach, kill: old.Kill,
		awaitMaster: func() { s.AwaitMaster(lockKey(key), old) },
	}
}

// pause stops the server of a key.
func (s *service) pause(key string) (resume func()) {
	if s.postgres != nil {
		s.postgres.server.Pause()
		return s.postgres.server.Resume
	}
	master := s.master(key)
	master.Pause()
	return master.Resume
}

// user makes one with these rights on each node, and returns the client's setting.
func (s *service) user(tb testing.TB, name string, rights ...string) setting {
	tb.Helper()
	s.everywhere(tb, append([]string{"ACL", "SETUSER", name, "on", ">" + testservers.UserPassword}, rights...)...)
	return ofRedis(func(o *redis.UniversalOptions) { o.Username, o.Password = name, testservers.UserPassword })
}

// withoutReplays is the setting of a client that sends everything once.
var withoutReplays = ofRedis(func(o *redis.UniversalOptions) { o.MaxRetries, o.MaxRedirects = -1, 3 })

// locker makes a silent Locker over a client of the service, that the test closes.
func locker(tb testing.TB, client client, opts distlock.Options) *distlock.Locker {
	tb.Helper()
	l, err := newLocker(client, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return l
}

// newLocker makes a silent Locker.
func newLocker(client client, opts distlock.Options) (*distlock.Locker, error) {
	opts.Namespace = cmp.Or(opts.Namespace, namespace)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if client.postgres != nil {
		return pglock.New(context.Background(), client.postgres, &pglock.Options{Lock: opts})
	}
	return redislock.New(client.redis, &opts)
}

func mustAcquire(tb testing.TB, l *distlock.Locker, key string) *distlock.Lease {
	tb.Helper()
	lease, err := l.Acquire(context.Background(), key)
	if err != nil {
		tb.Fatalf("Acquire: %v", err)
	}
	return lease
}

func mustRelease(tb testing.TB, lease *distlock.Lease) {
	tb.Helper()
	if err := lease.Release(context.Background()); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// mustDo sends a command to one node, past all clients and proxies.
func mustDo(tb testing.TB, node *testservers.Redis, args ...string) string {
	tb.Helper()
	reply, err := node.Do(args...)
	if err != nil {
		tb.Fatalf("%s: %v", args[0], err)
	}
	return reply
}

// everywhere sends a command to each node.
func (s *service) everywhere(tb testing.TB, args ...string) {
	tb.Helper()
	for _, node := range s.Nodes() {
		mustDo(tb, node, args...)
	}
}

// recordKeep is how long the record of a new grant outlives the lock.
const recordKeep = driver.FenceKeep + 20*time.Millisecond

// question is what a test asks the server itself about a key, past all clients and proxies.
type question struct {
	redis    func(key string) []string
	postgres string // SQL, where {key} and {now} stand for the key and the clock
}

var (
	isHeld = question{func(key string) []string { // 1 or 0
		return []string{"EVAL", `
local record = redis.call('GET', KEYS[1])
if not record or not string.find(record, '^b2[hH]') then
  return 0
end
local ttl = redis.call('PTTL', KEYS[1])
return (ttl < 0 or ttl > tonumber(string.sub(record, 101, 111))) and 1 or 0`, "1", lockKey(key)}
	}, "SELECT count(*) FROM belugalock.lease WHERE key = {key} AND NOT released AND expires_at > {now}"}
	waiters = question{func(key string) []string { return []string{"ZCARD", queueKey(key)} },
		"SELECT count(*) FROM belugalock.waiter WHERE key = {key} AND alive_until > {now}"}
	// waiterRows are, by turns, owners and what the backend keeps of them: the second field is seq.
	waiterRows = question{func(key string) []string { return []string{"HGETALL", waitersKey(key)} },
		"SELECT owner || ' :' || seq || ':' FROM belugalock.waiter WHERE key = {key}"}
	queueKeys = question{func(key string) []string { return []string{"EXISTS", queueKey(key), waitersKey(key)} },
		"SELECT count(*) FROM belugalock.waiter WHERE key = {key}"}
	// expire lets a lock expire.
	expire = question{func(key string) []string {
		return []string{"PEXPIRE", lockKey(key), strconv.FormatInt(recordKeep.Milliseconds(), 10)}
	}, "UPDATE belugalock.lease SET expires_at = {now} WHERE key = {key}"}
	// recordOfQueue is the beginning of a record: "b2H" means that the lock is held and has a queue.
	recordOfQueue = question{func(key string) []string { return []string{"GETRANGE", lockKey(key), "0", "2"} },
		"SELECT 'b2H' FROM belugalock.lease WHERE key = {key} AND NOT released AND waiting > 0"}
	deleteRecord = question{func(key string) []string { return []string{"DEL", lockKey(key)} },
		"DELETE FROM belugalock.lease WHERE key = {key}"}
	sessionExists = question{func(key string) []string { return []string{"EXISTS", logKey(key)} }, // 1 or 0
		"SELECT count(*) FROM belugalock.session WHERE name = {key} AND exchanges > 0 AND kept_until > clock_timestamp()"}
	deleteSession = question{func(key string) []string { return []string{"DEL", logKey(key)} },
		"DELETE FROM belugalock.session WHERE name = {key}"}
)

// asked returns the answer of the server that has the key.
func (s *service) asked(q question, key string) (string, error) {
	if s.postgres != nil {
		return s.postgres.asked(q.postgres, key)
	}
	return s.master(key).Do(q.redis(key)...)
}

func (s *service) mustAsk(tb testing.TB, q question, key string) string {
	tb.Helper()
	answer, err := s.asked(q, key)
	if err != nil {
		tb.Fatalf("%s: %v", key, err)
	}
	return answer
}

// gone waits until nobody holds key, for at most a second: what a call may leave behind.
func (s *service) gone(tb testing.TB, key string) {
	tb.Helper()
	s.awaitAnswer(tb, time.Second, "0", key, isHeld)
}

// awaitWaiters waits until the queue of key has n waiters.
func (s *service) awaitWaiters(tb testing.TB, key string, n int) {
	tb.Helper()
	s.awaitAnswer(tb, 15*time.Second, strconv.Itoa(n), key, waiters)
}

// queueGone waits until key has no queue, for at most a second.
func (s *service) queueGone(tb testing.TB, key string) {
	tb.Helper()
	s.awaitAnswer(tb, time.Second, "0", key, queueKeys)
}

// awaitAnswer asks until the server gives the answer that is wanted. The limit allows for stalls of
// this process.
func (s *service) awaitAnswer(tb testing.TB, limit time.Duration, want, key string, q question) {
	tb.Helper()
	var answer string
	var err error
	done := func() bool { answer, err = s.asked(q, key); return err == nil && answer == want }
	start := time.Now()
	for more := limit; !testservers.Within(more, done); {
		if more = limit + stalls.Stalled(start, time.Now()) - time.Since(start); more <= 0 {
			tb.Fatalf("after %s, %s has the answer %q, %v; want %q", time.Since(start), key, answer, err, want)
		}
	}
}

// keeps checks that a lease, which is renewed, is held for a time.
func keeps(tb testing.TB, lease *distlock.Lease, d time.Duration) {
	tb.Helper()
	if testservers.Within(d, func() bool { return lease.Err() != nil }) {
		tb.Errorf("the lease on %s: %v", lease.Key(), lease.Err())
	}
}

// rises checks that the next holder's token is above that of the one before.
func rises(tb testing.TB, before, next int64) {
	tb.Helper()
	if next <= before {
		tb.Errorf("fence %d after %d", next, before)
	}
}

// lostWithin waits until the lease's context is cancelled, and checks that it is for the right reason.
func lostWithin(tb testing.TB, lease *distlock.Lease, limit time.Duration) {
	tb.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-lease.Context().Done():
	case <-timer.C:
		tb.Fatalf("the holder was not told within %s", limit)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, distlock.ErrLost) || !errors.Is(lease.Err(), distlock.ErrLost) {
		tb.Errorf("the holder was told %v, and %v", cause, lease.Err())
	}
}

// recovered notes how long it took until others could go on, and fails the test if that was longer than promised.
func recovered(tb testing.TB, start time.Time, limit time.Duration) {
	tb.Helper()
	recoveredAt(tb, start, time.Now(), limit)
}

// recoveredAt is the same for a test that has noted when they went on.
func recoveredAt(tb testing.TB, start, at time.Time, limit time.Duration) {
	tb.Helper()
	took := at.Sub(start)
	tb.Logf("the next holder went on after %s; promised: %s", took.Round(time.Millisecond), limit)
	if took > limit+stalls.Stalled(start, at) {
		tb.Error("too late")
	}
}

// wantsWrite tests the error of a write that reached the backend or did not.
func wantsWrite(tb testing.TB, what string, err error) {
	tb.Helper()
	if !errors.Is(err, distlock.ErrOutcomeUnknown) && !errors.Is(err, distlock.ErrUnavailable) {
		tb.Errorf("%s: %v, want an unknown outcome or an outage", what, err)
	}
}

func wants(tb testing.TB, what string, err error, sentinels ...error) {
	tb.Helper()
	for _, want := range sentinels {
		if !errors.Is(err, want) {
			tb.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}
