package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

// keysWith returns the keys of the whole server whose dump has one of the texts.
func (r *rig) keysWith(t *testing.T, texts ...string) (keys []string) {
	t.Helper()
	for _, key := range r.client.Keys(t.Context(), "*").Val() {
		dump := r.client.Dump(t.Context(), key).Val()
		for _, text := range texts {
			if strings.Contains(dump, text) {
				keys = append(keys, fmt.Sprintf("%s has %q", key, text))
			}
		}
	}
	return keys
}

// giveUp saves 9 exchanges, and replaces 4 and 5 by 4 others. Two of them make a step. The Replace ends with
// its context when it sends request n of the staging, which held keeps from Redis. Without so many
// requests, done is true.
func (r *rig) giveUp(t *testing.T, proxy *faultnet.Proxy, n int) (held *faultnet.Held, done bool) {
	t.Helper()
	err := r.memory.Turn(t.Context(), func(ctx context.Context) error {
		long := strings.Repeat("x", 33<<10)
		for n := range 9 {
			must(t, r.store.SaveOnce(ctx, fmt.Sprintf("id-%d.", n), "question"+long, fmt.Sprintf("secret-%d.", n)))
		}
		all := r.places(t)
		var with []lockedmemory.Exchange[string]
		for i := range 4 {
			with = append(with, exchange("question"+long, fmt.Sprintf("fresh-%d.", i)))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stages, sent := faultnet.Containing(r.stage()), 0
		held = proxy.HoldRequests(func(request []byte) bool {
			if !stages(request) {
				return false
			}
			if sent++; sent == n {
				cancel()
			}
			return sent == n
		})
		return r.store.Replace(ctx, all[4], all[5], with...)
	})
	switch {
	case err == nil:
		held.Release() // no request is held, and none will be
	case !errors.Is(err, context.Canceled):
		t.Errorf("given up at request %d: %v", n, err)
	}
	return held, err == nil
}

// A Replace is given up at each of its requests. Then the session is cleared, deleted or replaced, and the
// kept request arrives late. No key of the server has an erased text. If nothing else happens, no key has
// a new text when the staging has expired, which is after 60 s at most.
func TestErased_O_givenUpReplace_inNoKey(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--rdbcompression", "no")
	proxy := faultnet.New(t, server.Addr())
	r := newRig(t, proxy)
	if _, done := r.giveUp(t, proxy, 100); !done || r.keysWith(t, "fresh-3.") == nil || r.keysWith(t, "secret-4.") != nil {
		t.Fatalf("this tests nothing: %t, %q", done, r.keysWith(t, "fresh-3.", "secret-4."))
	}
	staged := 0
	for what, after := range map[string]struct {
		erases func(ctx context.Context) error
		erased []string
	}{
		"Clear":  {r.memory.Clear, []string{"secret", "question", "fresh", "id-"}},
		"Delete": {r.memory.Delete, []string{"secret", "question", "fresh", "id-"}},
		"Replace": {func(ctx context.Context) error {
			all := r.places(t)
			return r.memory.Replace(ctx, all[3], all[6])
		}, []string{"secret-4.", "fresh"}},
		"expiry": {func(ctx context.Context) error {
			life := r.client.PTTL(ctx, r.stage()).Val()
			if life == -1 || life > time.Minute {
				t.Errorf("the staging lives for %s", life)
			}
			if life > 0 {
				staged++
			}
			r.client.PExpire(ctx, r.stage(), time.Millisecond)
			servers.Await(t, 5*time.Second, "the staging expires", func() bool { return r.client.Exists(ctx, r.stage()).Val() == 0 })
			return nil
		}, []string{"fresh"}},
	} {
		for n := 1; ; n++ {
			must(t, r.memory.Delete(t.Context()))
			held, done := r.giveUp(t, proxy, n)
			if done {
				break
			}
			must(t, after.erases(t.Context()))
			for _, when := range []string{"at once", "after the late request"} {
				if keys := r.keysWith(t, after.erased...); keys != nil {
					t.Errorf("%s after request %d, %s: %q", what, n, when, keys)
				}
				held.Release()
			}
		}
	}
	if staged < 3 {
		t.Errorf("of the Replaces that were given up, %d had a staging", staged)
	}
}

// A session is used in every way, and deleted. Each key that the server still has expires within a day and
// an hour, and none has a text or a turn ID of the session. Late writers and readers change nothing in that.
func TestErased_O_afterDelete_everyKeyExpires(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--rdbcompression", "no")
	proxy := faultnet.New(t, server.Addr())
	r := newRig(t, proxy)
	other := newRig(t, server)
	texts := []string{"secret", "question", "fresh", "id-"}
	check := func(when string) {
		t.Helper()
		for _, key := range r.client.Keys(t.Context(), "*").Val() {
			if life := r.client.PTTL(t.Context(), key).Val(); life == -1 || life > 25*time.Hour {
				t.Errorf("%s, %q lives for %s", when, key, life)
			}
		}
		if keys := r.keysWith(t, texts...); keys != nil {
			t.Errorf("%s: %q", when, keys)
		}
	}
	held, _ := r.giveUp(t, proxy, 4)
	var waits sync.WaitGroup
	old := r.stale(t, func(ctx context.Context) error {
		for range 3 { // they wait in the queue in Redis
			waits.Go(func() { must(t, other.memory.Save(t.Context(), "question", "secret")) })
		}
		servers.Await(t, 5*time.Second, "a waiter", func() bool {
			return r.client.Exists(ctx, strings.TrimSuffix(r.lock(), "lock")+"queue").Val() == 1
		})
		return nil
	})
	waits.Wait()
	if found := r.keysWith(t, texts...); len(found) < 4 || r.client.Exists(t.Context(), r.stage()).Val() == 0 {
		t.Fatalf("this tests nothing: %q", found)
	}
	must(t, r.memory.Delete(t.Context()))
	check("after the Delete")
	held.Release()
	check("after a late step of a Replace")
	isStale(t, "a late Save", r.store.SaveOnce(old, "id-late", "question", "secret"))
	check("after a late Save")
	if got := other.history(t); len(got) != 0 {
		t.Errorf("the history is %q", got)
	}
	must(t, other.memory.Turn(t.Context(), other.opens))
	check("after a later turn")
}
