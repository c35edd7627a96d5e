package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func locker(t *testing.T, url string) *distlock.Locker {
	t.Helper()
	l, err := lockurl.Open(t.Context(), url, &distlock.Options{TTL: 3 * time.Second, Wait: time.Minute})
	must(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func TestRelease_holderLosesAndWaiterWins(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		holder, next := locker(t, url), locker(t, url)
		lease, err := holder.Acquire(t.Context(), "apple")
		must(t, err)
		won := make(chan *distlock.Lease, 1)
		go func() {
			lease, err := next.Acquire(t.Context(), "apple")
			if err != nil {
				t.Error(err)
			}
			won <- lease
		}()
		servers.Await(t, 30*time.Second, "the waiter", func() bool {
			return strings.Contains(lockctl(t, "show", "apple", "--url", url).out, "waiters   1")
		})
		number := strconv.FormatInt(lease.Fence(), 10)
		lockctl(t, "release", "apple", "--token", number, "--yes", "--url", url).is(t, 0, "Released.", number)
		second := <-won
		if second == nil {
			t.FailNow()
		}
		select {
		case <-lease.Context().Done():
		case <-time.After(30 * time.Second):
			t.Fatal("the old holder is not told")
		}
		if err := lease.Err(); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("the old lease ends with %v, want ErrLost", err)
		}
		if second.Fence() <= lease.Fence() {
			t.Errorf("the next holder has the token %d after %d", second.Fence(), lease.Fence())
		}
		lockctl(t, "release", "apple", "--token", number, "--yes", "--url", url).
			is(t, exitFinding, "the lock has the token "+strconv.FormatInt(second.Fence(), 10), "nothing was changed")
		if err := errors.Join(second.Err(), second.Release(t.Context())); err != nil {
			t.Error(err)
		}
		lockctl(t, "release", "apple", "--token", number, "--yes", "--url", url).is(t, exitFinding, "the lock is free")
	})
}

func TestRelease_asksAndNeedsTheToken(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		d := open(t, url)
		holder := acquire(t, d, "apple", "host-1:10")
		answered := func(answer, token string) result {
			return lockctlWith(t.Context(), strings.NewReader(answer), "release", "apple", "--token", token, "--url", url)
		}
		for _, wrong := range []int64{1, holder.reply.Fence - 1, holder.reply.FenceEnd + 1} {
			answered("y\n", strconv.FormatInt(wrong, 10)).is(t, exitFinding, "nothing was changed")
		}
		for _, no := range []string{"", "n\n", "\n", "yess\n", "no"} {
			answered(no, token(holder)).is(t, exitFinding, "host-1:10", "rejects each write", "End this lock? [y/N]", "not confirmed")
		}
		lockctl(t, "show", "apple", "--url", url).is(t, 0, "host-1:10")
		answered("Y\n", token(holder)).is(t, 0, "Released. The lock of host-1:10 under token "+token(holder))
		lockctl(t, "show", "apple", "--url", url).is(t, exitFinding, "(free)")
		holder = acquire(t, d, "apple", "host-1:10")
		lockctl(t, "release", "apple", "--token", token(holder), "--yes", "-o", "json", "--url", url).
			prints(t, 0, "{\n  \"key\": \"apple\",\n  \"released\": true,\n  \"token\": TOKEN\n}")
	})
}
