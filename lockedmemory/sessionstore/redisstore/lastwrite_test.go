package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// countRequests counts the requests about the session of a test, and about its lock. take returns how many
// there were since the last call.
func countRequests(t *testing.T, proxy *faultnet.Proxy) (take func() int) {
	var n atomic.Int64
	proxy.HoldRequests(func(request []byte) bool {
		if bytes.Contains(request, []byte("{"+t.Name()+"}:")) {
			n.Add(1)
		}
		return false
	})
	return func() int { return int(n.Swap(0)) }
}

// outcomes notes the operations of an Observer, with their requests.
type outcomes struct {
	mu  sync.Mutex
	all []distlock.Operation
}

func (o *outcomes) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (o *outcomes) End(_ context.Context, op *distlock.Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, *op)
}

// of returns the last operation with a name.
func (o *outcomes) of(t *testing.T, name string) distlock.Operation {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range slices.Backward(o.all) {
		if op.Name == name {
			return op
		}
	}
	t.Errorf("no operation %s among %+v", name, o.all)
	return distlock.Operation{}
}

// proxied is a rig behind a proxy. Its server has the scripts.
func proxied(t *testing.T, options ...any) (*rig, *faultnet.Proxy) {
	t.Helper()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	r := newRig(t, append(options, proxy)...)
	must(t, r.memory.Save(t.Context(), "first", "re: first"))
	r.wantFree(t) // loads the script of a release
	return r, proxy
}

// twice begins a call of which the first answer is lost. It returns when the second copy is held.
func twice(proxy *faultnet.Proxy, is func([]byte) bool, call func() error) (second *faultnet.Held, outcome <-chan error) {
	n := 0
	lost := proxy.DropReplies(faultnet.First(1, is))
	second = proxy.HoldRequests(func(request []byte) bool {
		if is(request) {
			n++
		}
		return is(request) && n == 2
	})
	done := make(chan error, 1)
	go func() { done <- call() }()
	lost.Wait(1)
	second.Wait(1)
	return second, done
}

// wantFree fails the test if another client cannot have the lock at once.
func (r *rig) wantFree(t *testing.T) {
	t.Helper()
	lease, err := newRig(t).locker.TryAcquire(t.Context(), r.key)
	if err != nil {
		t.Errorf("the lock: %v", err)
		return
	}
	must(t, lease.Release(t.Context()))
}

// pairs are the history of Saves with these questions.
func pairs(questions ...string) (all []string) {
	for _, q := range questions {
		all = append(all, q, "re: "+q)
	}
	return all
}

func (r *rig) wantHistory(t *testing.T, questions ...string) {
	t.Helper()
	if got := r.history(t); !slices.Equal(got, pairs(questions...)) {
		t.Errorf("the history is %q, want %q", got, pairs(questions...))
	}
}

// A Save outside a turn acquires, then appends and releases in one request.
func TestSave_outsideATurn_twoRoundTrips(t *testing.T) {
	t.Parallel()
	seen := new(outcomes)
	r, proxy := proxied(t, &distlock.Options{Observer: seen})
	once := func(id string) error { return r.memory.SaveOnce(t.Context(), id, "named", "re: named") }
	must(t, once("id"))
	requests := countRequests(t, proxy)
	save := func(ctx context.Context) error { return r.memory.Save(ctx, "q", "re: q") }
	for name, c := range map[string]struct {
		call func() error
		want int
		own  int // requests of the release
	}{
		"Save":               {func() error { return save(t.Context()) }, 2, 0},
		"SaveOnce":           {func() error { return once("new") }, 2, 0},
		"SaveOnce, repeated": {func() error { return once("id") }, 2, 0},
		"Save in a turn": {func() error {
			return r.memory.Turn(t.Context(), save)
		}, 3, 1},
		"the last Save of two in a turn": {func() error {
			return r.memory.Turn(t.Context(), func(ctx context.Context) error {
				return errors.Join(save(ctx), save(lastwrite.Announce(ctx)))
			})
		}, 3, 0},
		"two Saves in a Do": {func() error {
			return r.locker.Do(t.Context(), r.key, func(ctx context.Context) error {
				return errors.Join(save(ctx), save(ctx))
			})
		}, 4, 1},
	} {
		must(t, c.call())
		if got := requests(); got != c.want {
			t.Errorf("%s: %d requests, want %d", name, got, c.want)
		}
		acquire, release := seen.of(t, distlock.OpAcquire), seen.of(t, distlock.OpRelease)
		if acquire.Outcome != distlock.OutcomeAcquired || release.Fence != acquire.Fence || release.Held <= 0 ||
			release.Outcome != distlock.OutcomeDone || release.Attempts != c.own {
			t.Errorf("%s: the Observer saw %+v, then %+v", name, acquire, release)
		}
		r.wantFree(t)
	}
	if got := r.history(t); len(got) != 2*9 {
		t.Errorf("the history is %q", got)
	}
}

// The store leaves the lock alone if its lock is on another client, or if a wrapper waits for the
// release.
func TestSave_locksElsewhere_ownRelease(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	locks, sessions := newRig(t, proxy).client, newRig(t, proxy)
	for name, wraps := range map[string]bool{"another client": false, "a wrapped driver": true} {
		d, err := redislock.NewDriver(locks)
		must(t, err)
		wrapped := drivertest.NewFaults(d)
		r := *sessions
		if wraps {
			d, r.client = wrapped, locks
		}
		r.locker, err = distlock.New(d, nil)
		must(t, err)
		memory := r.named(t, t.Name()).memory
		must(t, memory.Save(t.Context(), "q", "a")) // the connections know the scripts from now on
		requests := countRequests(t, proxy)
		must(t, memory.Save(t.Context(), "q", "a"))
		if got, releases := requests(), wrapped.Calls(drivertest.Release); got != 3 || wraps && releases != 2 {
			t.Errorf("%s: %d requests, and the wrapper saw %d releases", name, got, releases)
		}
		must(t, r.locker.Close(t.Context()))
	}
}

// Between two copies another instance clears the session. The first copy was stored, the second is
// refused: the outcome is unknown, and nothing says that the exchange was never there.
func TestSave_O_clearedBetweenCopies_unknown(t *testing.T) {
	t.Parallel()
	seen := new(outcomes)
	r, proxy := proxied(t, &distlock.Options{Observer: seen})
	other := newRig(t)
	second, saved := twice(proxy, faultnet.Containing("re: q"), func() error { return r.memory.Save(t.Context(), "q", "re: q") })
	other.wantHistory(t, "first", "q")
	must(t, other.memory.Clear(t.Context())) // the first copy has released the lock
	must(t, other.memory.Save(t.Context(), "next", "re: next"))
	second.Release()
	if err := <-saved; !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrLost) {
		t.Errorf("Save: %v, want ErrOutcomeUnknown alone", err)
	}
	if slices.ContainsFunc(seen.all, func(op distlock.Operation) bool { return op.Name == distlock.OpLost }) {
		t.Errorf("a lease is lost: %+v", seen.all)
	}
	other.wantHistory(t, "next")
	r.wantFree(t)
}

// A Save that is refused leaves the lock to its lease, which may get a higher token.
func TestSave_S2_refused_keepsTheLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	marker := &redis.XAddArgs{Stream: r.log(), ID: fmt.Sprintf("%d-0", ahead), Values: []string{"mark", ""}}
	must(t, r.client.XAdd(t.Context(), marker).Err())
	must(t, r.memory.Save(t.Context(), "q", "re: q"))
	r.wantHistory(t, "q")
	r.wantFree(t)
}

// An exchange is stored although the right to release the lock is missing.
func TestSave_C_withoutTheRightToRelease_stored(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	seen := new(outcomes)
	r := newRig(t, server, &distlock.Options{Observer: seen})
	must(t, r.memory.Save(t.Context(), "first", "re: first"))
	do(t, server, "ACL", "SETUSER", "default", "-setrange")
	must(t, r.memory.Save(t.Context(), "q", "re: q"))
	if release := seen.of(t, distlock.OpRelease); release.Outcome != distlock.OutcomeRefused {
		t.Fatalf("the release: %+v", release)
	}
	r.wantHistory(t, "first", "q")
	do(t, server, "ACL", "SETUSER", "default", "+setrange")
	must(t, r.memory.Save(t.Context(), "next", "re: next")) // the clean-up has released the lock
	r.wantHistory(t, "first", "q", "next")
}

// While a slot of a Cluster moves, its master rejects scripts. Calls wait for the end of the move. Then an
// exchange is stored once, and the lock is free.
func TestSave_slotMovesOnCluster_storedOnce(t *testing.T) {
	t.Parallel()
	cluster := servers.StartCluster(t)
	r := newRig(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true}))
	must(t, r.memory.Save(t.Context(), "first", "re: first"))
	for _, moved := range []string{r.log(), r.lock(), r.mark()} {
		during := func(ctx context.Context, call func(context.Context) error) {
			finish := cluster.BeginMove(r.log(), moved)
			defer finish()
			timer := time.AfterFunc(300*time.Millisecond, finish)
			defer timer.Stop()
			must(t, call(ctx))
		}
		during(t.Context(), func(ctx context.Context) error { return r.memory.Save(ctx, moved, "re: "+moved) })
		if state, err := r.locker.Inspect(t.Context(), r.key); err != nil || state.Held {
			t.Errorf("the lock: %+v, %v", state, err)
		}
		r.turn(t, func(ctx context.Context) {
			during(ctx, r.opens)
			during(ctx, func(ctx context.Context) error { return r.memory.SaveOnce(ctx, moved, "once", "re: once") })
		})
	}
	r.wantHistory(t, "first", r.log(), "once", r.lock(), "once", r.mark(), "once")
}
