package redlock

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// tested is a node, with calls that end the test unless they are answered as it wants.
type tested struct {
	*testing.T
	*node
}

// open makes a node that the test closes, with its client.
func open(t *testing.T, options *redis.Options) tested {
	t.Helper()
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	n := newNode(client, false, &uptime{node: options.Addr, claims: &claims{}})
	t.Cleanup(func() { _ = n.Close() })
	return tested{t, n}
}

// onNode are the options of a client of the shared Redis.
func onNode(tb testing.TB) *redis.Options {
	db := servers.SharedRedis(tb)
	return &redis.Options{Addr: db.Addr(), DB: db.DB(), ContextTimeoutEnabled: true}
}

var name = driver.Name{Namespace: "n", Key: "k"}

func owner(c string) string { return strings.Repeat(c, 32) }

// propose asks for a block of tokens from a moment of this machine's clock on.
func propose(c string, ahead time.Duration) quorum.Proposal {
	return quorum.Proposal{Name: name, Owner: owner(c), TTL: time.Minute, Token: time.Now().Add(ahead).UnixMicro()}
}

func (n tested) wants(call string, reply quorum.Reply, err error, want quorum.Outcome) quorum.Reply {
	n.Helper()
	if err != nil || reply.Outcome != want {
		n.Fatalf("%s: %+v, %v; want %q", call, reply, err, want)
	}
	return reply
}

func (n tested) propose(req quorum.Proposal, want quorum.Outcome) quorum.Reply {
	n.Helper()
	reply, err := n.Acquire(n.Context(), req)
	return n.wants("Acquire", reply, err, want)
}

func (n tested) raise(c string, floor int64, want quorum.Outcome) quorum.Reply {
	n.Helper()
	reply, err := n.Raise(n.Context(), driver.RaiseRequest{Name: name, Owner: owner(c), Floor: floor})
	return n.wants("Raise", reply, err, want)
}

func (n tested) extend(c string, ttl time.Duration, want quorum.Outcome) {
	n.Helper()
	reply, err := n.Extend(n.Context(), driver.ExtendRequest{Name: name, Owner: owner(c), TTL: ttl})
	n.wants("Extend", reply, err, want)
}

func (n tested) release(c string, tombstone time.Duration, want quorum.Outcome) {
	n.Helper()
	reply, err := n.Release(n.Context(), driver.ReleaseRequest{Name: name, Owner: owner(c), Tombstone: tombstone}, false)
	n.wants("Release", reply, err, want)
}

func do(t *testing.T, server *servers.Redis, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
