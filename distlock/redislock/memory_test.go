package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// After a run, each key of each lock expires, and a name takes at most 330 B: the sum of MEMORY USAGE
// over all keys, which counts a key, its entry in the dictionary, and its value. The holder's name is
// as long as a record keeps one for a day.
func TestKeys_afterARun_smallAndExpiring(t *testing.T) {
	const names, most = 200, 330
	server := servers.SharedRedis(t)
	client := newClient(t, server)
	holder := heldBy(strings.Repeat("h", 64-len(`{"h":""}`)))
	one, other := newLocker(t, client, ttl(time.Second), forever, holder), newLocker(t, client, ttl(time.Second), forever, holder)
	name := func(i int) string { return fmt.Sprintf("session-%05d", i) }
	must := func(lease *distlock.Lease, err error) *distlock.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	for i := range names {
		mustRelease(t, must(one.Acquire(t.Context(), name(i))))
	}
	var waiters sync.WaitGroup
	for i := range names / 10 { // every other waiter leaves
		holder := must(one.Acquire(t.Context(), name(i)))
		ctx, leave := context.WithCancel(t.Context())
		waiters.Go(func() {
			lease, err := other.Acquire(ctx, name(i))
			if err == nil {
				mustRelease(t, lease)
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		servers.Await(t, 5*time.Second, "a waiter", func() bool { return do(t, server, "ZCARD", "distlock:{"+name(i)+"}:queue") == "1" })
		if i%2 == 0 {
			leave()
		}
		mustRelease(t, holder)
		waiters.Wait()
		leave()
	}
	abandoned := newLocker(t, client, ttl(time.Second), renewEvery(-1), holder)
	var last *distlock.Lease
	for i := range names / 10 {
		last = must(abandoned.Acquire(t.Context(), name(i)))
	}
	<-last.Context().Done()
	for _, l := range []*distlock.Locker{one, other, abandoned} { // what goes on in the background ends
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}

	sum, records := int64(0), 0
	for _, k := range client.Keys(t.Context(), "*").Val() {
		used := client.MemoryUsage(t.Context(), k).Val()
		sum += used
		if strings.HasSuffix(k, ":lock") {
			records++
			if used > most {
				t.Errorf("a record takes %d B: %q", used, client.Get(t.Context(), k).Val())
			}
		}
		if ttl := client.PTTL(t.Context(), k).Val(); ttl <= 0 {
			t.Errorf("%q expires in %s", k, ttl)
		}
	}
	t.Logf("%d names take %d B each", records, sum/names)
	if records != names || sum > most*names {
		t.Errorf("%d records of %d names; all keys take %d B", records, names, sum)
	}
}
