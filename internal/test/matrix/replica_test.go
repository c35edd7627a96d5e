package matrix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// replicaAnswers: for a while, a client is led to a read-only replica that has received no lock.
// The replica refuses each call for now, so no lease is lost, and no lock is busy or free by its
// word.
func replicaAnswers(t *testing.T, s *service) {
	const key, ttl = "replicaAnswers", 3 * time.Second
	replica, code := s.readOnlyReplica(t)
	network := faultnet.NewNet(t)
	var led atomic.Bool
	lead := func(there bool) {
		network.Refuse()
		led.Store(there)
		network.Heal()
	}
	client := s.client(t, dialedBy(func(ctx context.Context, protocol, addr string) (net.Conn, error) {
		if led.Load() {
			addr = replica
		}
		return network.Dial(ctx, protocol, addr)
	}))
	l := locker(t, client, withTTL(ttl), renewing(ttl/15), forever)
	kept, released := mustAcquire(t, l, key+"-kept"), mustAcquire(t, l, key+"-released")
	if err := released.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	others := mustAcquire(t, s.locker(t), key)
	waiter := enqueue(t, s, l, key, 1)

	lead(true)
	if s.postgres != nil { // a call that meets a broken connection is not sent again
		reached := 0
		servers.Await(t, ttl/2, "all connections lead to the replica", func() bool {
			_, acquire := l.TryAcquire(t.Context(), key+"-free")
			extend := kept.Extend(t.Context(), ttl)
			if reached++; !strings.Contains(fmt.Sprint(acquire), code) || !strings.Contains(fmt.Sprint(extend), code) {
				reached = 0
			}
			return reached == 3
		})
	}
	_, free := l.TryAcquire(t.Context(), key+"-free")
	_, held := locker(t, client).TryAcquire(t.Context(), key)
	_, ask := fencing.Ask(t.Context(), l, key, driver.AskRequest{})
	for what, err := range map[string]error{
		"TryAcquire of a free lock": free, "TryAcquire of a lock that is held": held, "Ask": ask,
		"Extend": kept.Extend(t.Context(), ttl), "RaiseToken": fencing.RaiseToken(t.Context(), kept, kept.Fence()+1),
		"Release": released.Release(t.Context()),
	} {
		wants(t, what, err, distlock.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), code) || errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("%s: %v; want %s", what, err, code)
		}
	}
	keeps(t, kept, ttl/3)
	waiter.still()
	lead(false)

	if err := kept.Extend(t.Context(), ttl); err != nil {
		t.Errorf("Extend at the master: %v", err)
	}
	mustRelease(t, kept)
	s.awaitAnswer(t, check, "0", released.Key(), isHeld) // in the background
	mustRelease(t, others)
	next := waiter.lease(check)
	rises(t, others.Fence(), next.Fence())
	mustRelease(t, next)
	for _, key := range []string{key, kept.Key(), released.Key(), key + "-free"} {
		s.gone(t, key)
		s.expires(t, key)
	}
}

// readOnlyReplica returns the address of a server that refuses writes, and a word of its errors.
func (s *service) readOnlyReplica(t *testing.T) (addr, code string) {
	if s.postgres != nil {
		s.postgres.pair.Detach()
		s.postgres.url = s.postgres.database.URL() // clients do not look for another server
		return s.postgres.pair.Standby.Addr(), "25006"
	}
	replica := servers.StartRedis(t)
	mustDo(t, replica, "REPLICAOF", "127.0.0.1", "1")
	return replica.Addr(), "READONLY"
}
