package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// A distant server is slow, and its outcomes are known: a release leaves no tombstone.
func TestLocker_distantServer_noTombstones(t *testing.T) {
	server := servers.SharedRedis(t)
	proxy := faultnet.New(t, server.Addr())
	proxy.Latency(10 * time.Millisecond)
	client := newClient(t, proxy, redis.Options{DB: server.DB(), ContextTimeoutEnabled: true})
	l := newLocker(t, client)
	for range 5 {
		lease := mustAcquire(t, l)
		if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("TryAcquire: %v", err)
		}
		mustRelease(t, lease)
	}
	if marks, err := server.Do("KEYS", "*:tombstones"); marks != "" || err != nil {
		t.Errorf("tombstones: %q, %v", marks, err)
	}
}

// A short pause of the server fails no call, even if the client never retries.
func TestLocker_pauseWithoutRetries_noFailure(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	client := newClient(t, server, redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1})
	l := newLocker(t, client)
	for i := range 20 {
		for range 5 {
			if err := l.Do(t.Context(), "warm", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := server.Do("CLIENT", "PAUSE", "40", "ALL"); err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Errorf("Acquire: %v", err)
			continue
		}
		mustRelease(t, lease)
	}
}

// A reply reports whether its request was sent more than once.
func TestDriver_S1_reportsReplays(t *testing.T) { reportsReplays(t, onNode(t)) }

func TestDriver_S1_reportsReplays_onCluster(t *testing.T) {
	reportsReplays(t, on("cluster"))
}

func reportsReplays(t *testing.T, options redis.UniversalOptions) {
	d, network := interrupted(t, options)
	for i, again := range []bool{false, true, false, true} {
		lose := func() {
			if again {
				network.DropReplies(faultnet.First(1, faultnet.Containing("evalsha")))
			}
		}
		req := driver.AcquireRequest{
			Name: driver.Name{Namespace: t.Name(), Key: "k"}, Owner: fmt.Sprintf("%032x", i), TTL: time.Minute, Holder: "test",
			Seq: int64(i - 1), // the last needs the full script alone
		}
		lose()
		grant, err := d.Acquire(t.Context(), req)
		if err != nil || grant.Outcome != driver.Granted || grant.Replayed != again {
			t.Errorf("round %d: Acquire: %+v, %v", i, grant, err)
		}
		lose()
		reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if err != nil || !reply.Released || reply.Replayed != again {
			t.Errorf("round %d: Release: %+v, %v", i, reply, err)
		}
	}
}

// interrupted makes a driver whose network can fail.
func interrupted(t *testing.T, options redis.UniversalOptions) (driver.Driver, *faultnet.Net) {
	network := faultnet.NewNet(t)
	options.Dialer = network.Dial
	return drivers(options)(t), network
}

// An extend whose answer is lost fails and is not sent again: its caller repeats it.
func TestDriver_N_extend_isSentOnce(t *testing.T) { extendIsSentOnce(t, onNode(t)) }

func TestDriver_N_extend_isSentOnce_onCluster(t *testing.T) { extendIsSentOnce(t, on("cluster")) }

func TestDriver_N_extend_isSentOnce_overTheClient(t *testing.T) {
	network := faultnet.NewNet(t)
	options := onNode(t)
	options.Dialer = network.Dial
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	sendsOnce(t, driverOver(t, struct{ redis.UniversalClient }{client}), network)
}

func extendIsSentOnce(t *testing.T, options redis.UniversalOptions) {
	d, network := interrupted(t, options)
	sendsOnce(t, d, network)
}

func sendsOnce(t *testing.T, d driver.Driver, network *faultnet.Net) {
	req := driver.AcquireRequest{Name: driver.Name{Namespace: t.Name(), Key: "k"}, Owner: fmt.Sprintf("%032x", 1), TTL: time.Minute}
	if grant, err := d.Acquire(t.Context(), req); err != nil || grant.Outcome != driver.Granted {
		t.Fatalf("Acquire: %+v, %v", grant, err)
	}
	extend := []driver.ExtendRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Minute}}
	for _, lost := range []bool{false, true, false} {
		if lost {
			network.DropReplies(faultnet.First(1, faultnet.Containing("evalsha")))
		}
		if reply := d.Extend(t.Context(), extend)[0]; (reply.Err != nil) != lost || reply.Held == lost {
			t.Errorf("with the answer lost (%t): %+v", lost, reply)
		}
	}
}
