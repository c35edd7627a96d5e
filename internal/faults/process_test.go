package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/testservers"
)

// A waiter has the lock one TTL after its holder was killed, with a higher token.
func holderKilled(t *testing.T, s *service) {
	const key, ttl = "holderKilled", time.Second
	holder := startChild(t, order{URL: s.url, Key: key, TTL: ttl})
	l := locker(t, s.client(t), distlock.Options{TTL: ttl, Wait: -1})
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Fatalf("while the holder lives: %v", err)
	}
	holder.kill()
	start := time.Now()
	lease := mustAcquire(t, l, key)
	recovered(t, start, ttl+time.Second)
	if lease.Fence() <= holder.fence {
		t.Errorf("fence %d after %d", lease.Fence(), holder.fence)
	}
	mustRelease(t, lease)
}

// A holder that was stopped for longer than its TTL writes before it looks at anything. The lock cannot prevent that, the
// token does; then the holder is told.
func holderStoppedWritten(t *testing.T, s *service) {
	holderStopped(t, s, "holderStoppedWritten", func(st *store, lease *distlock.Lease) string {
		return st.write(t.Context(), lease.Key(), lease.Fence(), "new")
	}, "old", "new")
}

// The same while the new holder has only loaded the history, and waits for its model.
func holderStoppedLoaded(t *testing.T, s *service) {
	holderStopped(t, s, "holderStoppedLoaded", func(st *store, lease *distlock.Lease) string {
		return st.raise(t.Context(), lease.Key(), lease.Fence())
	}, "old")
}

func holderStopped(t *testing.T, s *service, key string, begin func(*store, *distlock.Lease) string, want ...string) {
	const ttl = time.Second
	server := testservers.StartRedis(t)
	st := newStore(server.Addr())
	defer st.client.Close()
	holder := startChild(t, order{URL: s.url, Key: key, TTL: ttl, Store: server.Addr()})
	holder.tell("write old")
	if answer := holder.answer(); answer != "written" {
		t.Fatalf("the holder's write: %s", answer)
	}

	holder.signal(syscall.SIGSTOP)
	start := time.Now()
	lease := mustAcquire(t, locker(t, s.client(t), distlock.Options{TTL: ttl, Wait: -1}), key)
	recovered(t, start, ttl+time.Second)
	if answer := begin(st, lease); answer != "written" {
		t.Fatalf("the new holder's access: %s", answer)
	}
	holder.tell("write stale")
	holder.tell("cause")
	holder.signal(syscall.SIGCONT)
	if answer := holder.answer(); answer != "refused" {
		t.Errorf("the stale write: %s", answer)
	}
	if cause := holder.answer(); cause != distlock.ErrLost.Error() {
		t.Errorf("the stopped holder was told %q", cause)
	}
	if log, err := st.log(context.Background(), key); err != nil || !slices.Equal(log, want) {
		t.Errorf("the store has %s, %v; want %s", strings.Join(log, " "), err, strings.Join(want, " "))
	}
	if err := lease.Err(); err != nil {
		t.Errorf("the new holder: %v", err)
	}
	mustRelease(t, lease)
}
