package matrix

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// namespace is that of all locks of these tests.
const namespace = "faults"

// topologies are those of Redis, quorums, and PostgreSQL without and with a standby.
var topologies = slices.Concat(servers.Topologies, servers.Quorums, []string{"postgres", "standby"})

// service is a running Redis of some topology, or a PostgreSQL.
type service struct {
	Name              string // one of topologies
	*servers.Topology        // of Redis; nil: PostgreSQL
	postgres          *postgres
	beside            *beside // of a quorum; nil: the locks' servers keep the sessions
}

func startService(tb testing.TB, topology string) *service {
	tb.Helper()
	switch topology {
	case "postgres":
		return newPostgres(tb, servers.StartPostgres(tb))
	case "standby":
		return startPair(tb)
	}
	s := &service{Name: topology, Topology: servers.StartTopology(tb, topology)}
	if s.Quorum != nil {
		s.beside = &beside{store: servers.StartRedis(tb), restartDelay: allNodesCount}
	}
	return s
}

// target is where a process finds the service.
type target struct {
	Addrs      []string
	MasterName string
	Postgres   string // the URL; empty: Redis
	// Nodes keep the locks, and Addrs the sessions; nil: Addrs keep both.
	Nodes        []string
	RestartDelay time.Duration
}

func (s *service) target() target {
	if s.postgres != nil {
		return target{Postgres: s.postgres.url}
	}
	if s.beside != nil {
		return target{Nodes: s.Addrs(), Addrs: s.beside.store.Addrs(), RestartDelay: s.beside.restartDelay}
	}
	return target{Addrs: s.Addrs(), MasterName: s.MasterName()}
}

// URL is for lockurl.
func (s *service) URL() string {
	if s.postgres != nil {
		return s.postgres.url
	}
	if s.beside != nil {
		return s.Topology.URL() + "?restart_delay=" + s.beside.restartDelay.String()
	}
	return s.Topology.URL()
}

// client is an application's client of the service.
type client struct {
	redis    redis.UniversalClient
	postgres *pgxpool.Pool           // nil: Redis
	nodes    []redis.UniversalClient // of a quorum, where redis is for the sessions
	// restartDelay is that of a Locker over the nodes.
	restartDelay time.Duration
}

// setting changes the options of a client, or those of the Lockers over it. Nil changes nothing.
type setting struct {
	redis    func(*redis.UniversalOptions)
	postgres func(*pgxpool.Config)
	lock     func(*distlock.Options)
}

func ofRedis(change func(*redis.UniversalOptions)) setting { return setting{redis: change} }
func ofLock(change func(*distlock.Options)) setting        { return setting{lock: change} }

func withTTL(d time.Duration) setting  { return ofLock(func(o *distlock.Options) { o.TTL = d }) }
func withWait(d time.Duration) setting { return ofLock(func(o *distlock.Options) { o.Wait = d }) }
func renewing(d time.Duration) setting { return ofLock(func(o *distlock.Options) { pace.Renew(o, d) }) }

var forever = withWait(-1)

// open makes a client.
func (t target) open(with ...setting) (client, error) {
	if t.Postgres != "" {
		return openPostgres(t.Postgres, with)
	}
	c := client{redis: openRedis(t.Addrs, t.MasterName, with), restartDelay: t.RestartDelay}
	for _, node := range t.Nodes {
		c.nodes = append(c.nodes, openRedis([]string{node}, "", with))
	}
	return c, nil
}

func openRedis(addrs []string, masterName string, with []setting) redis.UniversalClient {
	options := redis.UniversalOptions{Addrs: addrs, MasterName: masterName, ContextTimeoutEnabled: true}
	for _, change := range with {
		if change.redis != nil {
			change.redis(&options)
		}
	}
	return redis.NewUniversalClient(&options)
}

func (c client) close() {
	if c.postgres != nil {
		c.postgres.Close()
		return
	}
	for _, each := range append(c.nodes, c.redis) {
		_ = each.Close()
	}
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
func (s *service) master(key string) *servers.Redis { return s.Master(lockKey(key)) }

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

// calls is what each request about a lock contains, and acquires what those contain that may grant
// it.
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

// user makes one with these rights on each node, and returns the client's setting.
func (s *service) user(tb testing.TB, name string, rights ...string) setting {
	tb.Helper()
	s.everywhere(tb, append([]string{"ACL", "SETUSER", name, "on", ">" + servers.UserPassword}, rights...)...)
	return ofRedis(func(o *redis.UniversalOptions) { o.Username, o.Password = name, servers.UserPassword })
}

// withoutReplays is the setting of a client that sends everything once.
var withoutReplays = ofRedis(func(o *redis.UniversalOptions) { o.MaxRetries, o.MaxRedirects = -1, 3 })

// locker makes a Locker over a client of its own. The test closes both.
func (s *service) locker(tb testing.TB, with ...setting) *distlock.Locker {
	tb.Helper()
	return locker(tb, s.client(tb, with...), with...)
}

// locker makes a Locker over a client, that the test closes.
func locker(tb testing.TB, client client, with ...setting) *distlock.Locker {
	tb.Helper()
	l, err := newLocker(client, with...)
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

// options are those of a silent Locker.
func options(with ...setting) *distlock.Options {
	opts := &distlock.Options{Namespace: namespace, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range with {
		if change.lock != nil {
			change.lock(opts)
		}
	}
	return opts
}

func newLocker(client client, with ...setting) (*distlock.Locker, error) {
	opts := options(with...)
	if client.postgres != nil {
		return pglock.New(context.Background(), client.postgres, &pglock.Options{Options: *opts})
	}
	if client.nodes != nil {
		return redlock.New(client.nodes, &redlock.Options{Options: *opts, RestartDelay: client.restartDelay})
	}
	return redislock.New(client.redis, opts)
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
func mustDo(tb testing.TB, node *servers.Redis, args ...string) string {
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

// keeps checks that a lease, which is renewed, is held for a time.
func keeps(tb testing.TB, lease *distlock.Lease, d time.Duration) {
	tb.Helper()
	if servers.Within(d, func() bool { return lease.Err() != nil }) {
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

// lostWithin waits until the lease's context is cancelled, and checks that it is for the right
// reason.
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

// recovered notes how long it took until others could go on, and fails the test if that was longer
// than promised.
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
