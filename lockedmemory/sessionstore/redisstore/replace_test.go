package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// places returns the places of the history.
func (r *rig) places(t *testing.T) (all []lockedmemory.Place) {
	t.Helper()
	for e, err := range r.store.Forward(t.Context(), lockedmemory.Place{}) {
		must(t, err)
		all = append(all, e.Place)
	}
	return all
}

func exchange(messages ...string) lockedmemory.Exchange[string] {
	return lockedmemory.Exchange[string]{Messages: messages}
}

// isStale checks the refusal of a call under a lease that is over.
func isStale(t *testing.T, what string, err error) {
	t.Helper()
	if stale := new(sessionstore.StaleError); !errors.As(err, &stale) {
		t.Errorf("%s: %v; want a StaleError", what, err)
	}
}

// isSwap reports whether a request is the last step of a Replace, or a Clear.
func (r *rig) isSwap(request []byte) bool {
	text := string(request)
	step := strings.Contains(text, "\r\nbegin\r\n") || strings.Contains(text, "\r\ncopy\r\n") || strings.Contains(text, "\r\nadd\r\n")
	return strings.Contains(text, r.stage()) && !step
}

// A Replace under a lease that is over is refused before anything is staged.
func TestReplace_S2_staleLease_stagesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	must(t, r.memory.Save(t.Context(), "q", "a"))
	old := r.stale(t, idle)
	must(t, r.memory.Save(t.Context(), "q2", "a2"))
	all := r.places(t)
	isStale(t, "Replace", r.store.Replace(old, all[0], all[0]))
	must(t, r.memory.Clear(t.Context()))
	isStale(t, "Replace after a Clear", r.store.Replace(old, all[0], all[0]))
	if n := r.client.Exists(t.Context(), r.stage()).Val(); n != 0 {
		t.Error("something is staged")
	}
}

// Between the commands of a page, the history is replaced. No read shows a mixture, from whatever place it
// begins.
func TestForward_O_replacedAmidPage_whole(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	r, writer := newRig(t, proxy), newRig(t)
	for page := range 2 {
		for _, begin := range []int{-1, 0} {
			must(t, writer.memory.Clear(t.Context()))
			writer.turn(t, func(ctx context.Context) {
				for n := range 20 {
					must(t, writer.memory.Save(ctx, "q", fmt.Sprint(n)))
				}
			})
			all := writer.places(t)
			var called *atomic.Bool
			replaces := func() {
				called = writer.amid(proxy, "get", func() {
					with := exchange("q", "new")
					must(t, errors.Join(writer.memory.Replace(t.Context(), all[18], all[18], with),
						writer.memory.Replace(t.Context(), all[1], all[1], with)))
				})
			}
			var after lockedmemory.Place
			if begin >= 0 {
				after = all[begin]
			}
			var read []string
			var failed error
			if page == 0 {
				replaces()
			}
			for e, err := range r.store.Forward(t.Context(), after) {
				if failed = err; err != nil {
					break
				}
				if read = append(read, e.Output()); len(read) == 1 && page == 1 { // the first page is here
					replaces()
				}
			}
			old, edited := slices.Contains(read, "1") || slices.Contains(read, "18"), slices.Contains(read, "new")
			if !called.Load() || failed == nil && (len(read) != 19-begin || old && edited) || failed != nil && !errors.Is(failed, sessionstore.ErrChanged) {
				t.Errorf("page %d, from %d, called %t: %v, %q", page, begin, called.Load(), failed, read)
			}
		}
	}
}

// Between the mark and the entries of a Load with a Window, all of the history becomes a summary, and new
// exchanges leave no room for it. The Load returns one of the two histories.
func TestLoad_O_replacedAmidPage_whole(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	r, writer := newRig(t, proxy), newRig(t)
	save := func(ctx context.Context, text string) {
		for range 6 {
			must(t, writer.memory.Save(ctx, text, text))
		}
	}
	save(t.Context(), "old")
	all := writer.places(t)
	summary := exchange("summary")
	summary.Pinned = true
	called := writer.amid(proxy, "get", func() {
		must(t, writer.memory.Replace(t.Context(), all[0], all[5], summary))
		save(t.Context(), "new")
	})
	view, err := redisstore.New(r.client, lockedmemory.FixedKey(r.key), sessionstore.JSON[string]{}, nil,
		&sessionstore.Options{Window: 1})
	must(t, err)
	got, err := view.Load(t.Context(), "")
	if want := []string{"summary", "new", "new"}; err != nil || !called.Load() || !slices.Equal(got, want) {
		t.Errorf("called %t: %v, %q, want %q", called.Load(), err, got, want)
	}
}

// Between two copies of the last step, the lease is lost and another one reads. The first copy was
// carried out, the second is refused: the outcome is unknown, and nothing says that nothing was written.
func TestReplace_O_overtakenBetweenCopies_unknown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Replace", "Clear", "Delete"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, proxy := proxied(t, &redis.Options{ReadTimeout: 20 * time.Second})
			other := newRig(t)
			r.at = r.places(t)[0] // the server knows the scripts from now on
			must(t, calls["Replace"](t.Context(), r))
			must(t, r.memory.Clear(t.Context()))
			must(t, r.memory.Save(t.Context(), "first", "re: first"))
			_ = r.memory.Turn(t.Context(), func(ctx context.Context) error {
				r.at = r.places(t)[0]
				second, done := twice(proxy, r.isSwap, func() error { return calls[name](ctx, r) })
				r.expire(ctx)
				must(t, other.memory.Turn(t.Context(), other.opens))
				second.Release()
				stale := new(sessionstore.StaleError)
				if err := <-done; !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.As(err, &stale) {
					t.Errorf("%v, want ErrOutcomeUnknown", err)
				}
				return nil
			})
			if slices.Contains(other.history(t), "first") {
				t.Error("the first copy was not carried out")
			}
		})
	}
}

// The first answer to a Replace of a range that is not there is lost. Nothing was written, and the error
// says so.
func TestReplace_C_missingRange_lostAnswer(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	beyond := r.places(t)[0]
	beyond.N++
	lost := proxy.DropReplies(faultnet.First(1, faultnet.Containing("\r\nbegin\r\n")))
	err := r.memory.Replace(t.Context(), beyond, beyond)
	lost.Wait(1)
	if !errors.Is(err, sessionstore.ErrRange) || errors.Is(err, distlock.ErrOutcomeUnknown) {
		t.Errorf("Replace: %v, want ErrRange", err)
	}
}

// The mark is lost, with the count of the sub-places. A Replace still works, and the places of its range
// are not used again.
func TestReplace_O_lostMark_newPlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	must(t, r.memory.Save(t.Context(), "q", "a"))
	replace := func(i int, with ...lockedmemory.Exchange[string]) {
		t.Helper()
		at := r.places(t)[i]
		must(t, r.memory.Replace(t.Context(), at, at, with...))
	}
	replace(0, exchange("1"), exchange("2"), exchange("3"))
	must(t, r.client.Del(t.Context(), r.mark()).Err())
	replace(1, exchange("2a"), exchange("2b"))
	must(t, r.client.Del(t.Context(), r.mark()).Err())
	before := r.places(t)
	replace(3, exchange("3a"))
	if got := r.history(t); !slices.Equal(got, []string{"1", "2a", "2b", "3a"}) {
		t.Errorf("the history is %q", got)
	}
	if places := r.places(t); slices.Contains(before, places[3]) || places[3].Compare(before[3]) < 0 {
		t.Errorf("places %v after %v", places, before)
	}
}

// The first step of a Replace shows its token, even if the lease has not used the store before. While the
// other steps follow, an older holder is refused.
func TestReplace_S2_firstStep_showsToken(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, &redis.Options{ReadTimeout: 20 * time.Second})
	other := newRig(t)
	old := other.stale(t, other.opens)
	at := r.places(t)[0]
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		held := proxy.HoldRequests(faultnet.Containing("\r\ncopy\r\n"))
		done := make(chan error, 1)
		go func() { done <- r.store.Replace(ctx, at, at, exchange("e")) }()
		held.Wait(1)
		isStale(t, "the Save of an older holder", other.store.Save(old, "late", "late"))
		held.Release()
		return <-done
	}))
	if got := r.history(t); !slices.Equal(got, []string{"e"}) {
		t.Errorf("the history is %q", got)
	}
}

// A session has 999,999 sub-places. When they are used up, also by exchanges that are moved, a Replace is
// refused until a Clear.
func TestReplace_O_subPlacesUsedUp_refused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	replace := func(exchanges int) error {
		at := r.places(t)[0]
		with := slices.Repeat([]lockedmemory.Exchange[string]{exchange(fmt.Sprint(exchanges))}, exchanges)
		return r.memory.Replace(t.Context(), at, at, with...)
	}
	must(t, r.memory.Save(t.Context(), "q", "a"))
	must(t, r.memory.Save(t.Context(), "q2", "a2"))
	must(t, replace(3)) // so two exchanges share the place of the first, without its sub-place
	mark := r.client.Get(t.Context(), r.mark()).Val()
	used := func(revision int) {
		before, _ := strings.CutSuffix(mark, ":3:")
		must(t, r.client.Set(t.Context(), r.mark(), fmt.Sprint(before, ":", revision, ":"), 0).Err())
	}
	before := r.history(t)
	used(999_997)
	for name, n := range map[string]int{"new": 3, "moved": 1} {
		if err := replace(n); !errors.Is(err, sessionstore.ErrFull) || !slices.Equal(r.history(t), before) {
			t.Errorf("%s: %v, and the history is %q", name, err, r.history(t))
		}
	}
	used(999_996)
	must(t, replace(1))
	must(t, r.memory.Clear(t.Context()))
	must(t, r.memory.Save(t.Context(), "q", "a"))
	must(t, replace(3))
}

// Redis has no memory left, from each step of a Replace on. The step is refused, and the history is as
// before. The copy expires. Only the last step works without memory.
func TestReplace_C_fullMemory_refused(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultnet.New(t, server.Addr())
	r := newRig(t, proxy)
	memory := func(limit string) { do(t, server, "CONFIG", "SET", "maxmemory", limit) }
	long := strings.Repeat("x", 30<<10)
	for range 6 {
		must(t, r.memory.Save(t.Context(), "q", long))
	}
	with := exchange(long, "edited")
	before, refused := r.history(t), 0
	for done := false; !done; {
		must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
			all, n := r.places(t), 0
			held := proxy.HoldRequests(func(request []byte) bool {
				if strings.Contains(string(request), r.stage()) {
					if n++; n == refused+1 {
						memory("1mb")
					}
				}
				return false
			})
			err := r.store.Replace(ctx, all[3], all[3], with, with)
			held.Release()
			memory("0")
			if done = err == nil; done { // the last step frees memory
				return nil
			}
			refused++
			if !errors.Is(err, distlock.ErrRefused) || !slices.Equal(r.history(t), before) {
				t.Errorf("no memory from step %d on: %v, and %d messages", n, err, len(r.history(t)))
			}
			if life := r.client.PTTL(ctx, r.stage()).Val(); life == -1 || life > time.Minute {
				t.Errorf("the copy lives for %s", life)
			}
			return nil
		}))
	}
	if got := r.history(t); refused < 5 || len(got) != len(before)+2 || got[7] != "edited" {
		t.Errorf("%d steps were refused, and there are %d messages", refused, len(got))
	}
}

// A Replace may take longer than its copy lives: each step prolongs that life.
func TestReplace_steps_copyLives(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	hand := newRig(t).client
	must(t, r.memory.Save(t.Context(), "second", "re: second"))
	long := 0 // lives before the steps
	proxy.HoldRequests(func(request []byte) bool {
		if strings.Contains(string(request), r.stage()) {
			if hand.PTTL(t.Context(), r.stage()).Val() >= 40*time.Second {
				long++
			}
			hand.PExpire(t.Context(), r.stage(), 20*time.Second)
		}
		return false
	})
	r.at = r.places(t)[0]
	must(t, calls["Replace"](t.Context(), r))
	if long < 4 {
		t.Errorf("before %d steps alone the copy lives for long", long)
	}
}

// Before each last step, a hand removes the copy. The Replace ends as if the service did not answer.
func TestReplace_C_copyRemovedByHand_unavailable(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	r := newRig(t, proxy, &distlock.Options{TTL: 3 * time.Second})
	hand := newRig(t).client
	must(t, r.memory.Save(t.Context(), "q", "a"))
	must(t, r.memory.Save(t.Context(), "q2", "a2"))
	proxy.HoldRequests(func(request []byte) bool {
		if r.isSwap(request) {
			hand.Del(context.Background(), r.stage())
		}
		return false
	})
	r.turn(t, func(ctx context.Context) {
		at := r.places(t)[0]
		if err := r.store.Replace(ctx, at, at); !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Replace: %v, want ErrUnavailable", err)
		}
	})
	if got := r.history(t); !slices.Equal(got, []string{"q", "a", "q2", "a2"}) {
		t.Errorf("the history is %q", got)
	}
}

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
			return r.client.Del(ctx, r.stage()).Err()
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
	must(t, r.memory.Put(t.Context(), "id-put", "question"))
	must(t, r.memory.Delete(t.Context()))
	check("after the Delete")
	for _, key := range []string{r.log(), r.ids(), r.stage(), r.inbox()} {
		if r.client.Exists(t.Context(), key).Val() > 0 {
			t.Errorf("after the Delete there is %s", key)
		}
	}
	if mark := r.client.Get(t.Context(), r.mark()).Val(); !regexp.MustCompile(`^1:(\d+)-\d+:e::\d+:1:$`).MatchString(mark) {
		t.Errorf("the mark is %q", mark)
	}
	held.Release()
	check("after a late step of a Replace")
	isStale(t, "a late Save", r.store.SaveOnce(old, "id-late", "question", "secret"))
	check("after a late Save")
	other.wantHistory(t)
	must(t, other.memory.Turn(t.Context(), other.opens))
	check("after a later turn")
}
