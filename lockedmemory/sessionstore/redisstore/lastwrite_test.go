package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// requests counts the requests of a client about the session of a test, and about its lock.
type requests struct {
	mu sync.Mutex
	n  int
}

func countRequests(t *testing.T, proxy *faultnet.Proxy) *requests {
	c := new(requests)
	proxy.HoldRequests(func(request []byte) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if bytes.Contains(request, []byte("{"+t.Name()+"}:")) {
			c.n++
		}
		return false
	})
	return c
}

// take returns how many requests there were since the last call.
func (c *requests) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.n = 0 }()
	return c.n
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
func proxied(t *testing.T, o redis.Options, lo *distlock.Options) (*rig, *faultnet.Proxy) {
	t.Helper()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	o.Addr = proxy.Addr()
	r := newRig(t, o, lo, nil)
	must(t, r.memory.Save(t.Context(), "first", "re: first"))
	r.wantFree(t) // loads the script of a release
	return r, proxy
}

// savesTwice begins a Save of which the first answer is lost. It returns when the second copy is held.
func (r *rig) savesTwice(ctx context.Context, proxy *faultnet.Proxy) (second *faultnet.Held, saved <-chan error) {
	isSave, n := faultnet.Containing("re: q"), 0
	lost := proxy.DropReplies(faultnet.First(1, isSave))
	second = proxy.HoldRequests(func(request []byte) bool {
		if isSave(request) {
			n++
		}
		return isSave(request) && n == 2
	})
	outcome := make(chan error, 1)
	go func() { outcome <- r.store.Save(ctx, "q", "re: q") }()
	lost.Wait(1)
	second.Wait(1)
	return second, outcome
}

// wantFree fails the test if another client cannot have the lock at once.
func (r *rig) wantFree(t *testing.T) {
	t.Helper()
	lease, err := newRig(t, redis.Options{}, nil, nil).locker.TryAcquire(t.Context(), r.key)
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
	r, proxy := proxied(t, redis.Options{}, &distlock.Options{Observer: seen})
	once := func(id string) error { return r.memory.SaveOnce(t.Context(), id, "named", "re: named") }
	must(t, once("id"))
	n := countRequests(t, proxy)
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
		if got := n.take(); got != c.want {
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

// wrapped is a driver of another program around that of the locks.
type wrapped struct {
	driver.Driver
	releases int
}

func (w *wrapped) Unwrap() driver.Driver { return w.Driver }

func (w *wrapped) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	w.releases++
	return w.Driver.Release(ctx, req)
}

// The store leaves the lock alone if its lock is on another client, or if a wrapper waits for the
// release.
func TestSave_locksElsewhere_ownRelease(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	locks := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	sessions := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer locks.Close()
	defer sessions.Close()
	for name, c := range map[string]struct {
		client *redis.Client
		wraps  bool
	}{"another client": {sessions, false}, "a wrapped driver": {locks, true}} {
		d, err := redislock.NewDriver(locks)
		must(t, err)
		w := &wrapped{Driver: d}
		if c.wraps {
			d = w
		}
		locker, err := distlock.New(d, nil)
		must(t, err)
		store, err := redisstore.New(c.client, lockedmemory.FixedKey(t.Name()), sessionstore.JSON[string]{}, nil, nil)
		must(t, err)
		memory, err := lockedmemory.New(store, locker, lockedmemory.FixedKey(t.Name()), nil)
		must(t, err)
		must(t, memory.Save(t.Context(), "q", "a")) // the connections know the scripts from now on
		n := countRequests(t, proxy)
		must(t, memory.Save(t.Context(), "q", "a"))
		if got := n.take(); got != 3 || c.wraps && w.releases != 2 {
			t.Errorf("%s: %d requests, and the wrapper saw %d releases", name, got, w.releases)
		}
		must(t, locker.Close(t.Context()))
	}
}

// Between two copies another instance clears the session. The first copy was stored, the second is
// refused: the outcome is unknown, and nothing says that the exchange was never there.
func TestSave_O_clearedBetweenCopies_unknown(t *testing.T) {
	t.Parallel()
	seen := new(outcomes)
	r, proxy := proxied(t, redis.Options{}, &distlock.Options{Observer: seen})
	other := newRig(t, redis.Options{}, nil, nil)
	isSave := faultnet.Containing("re: q")
	lost := proxy.DropReplies(faultnet.First(1, isSave))
	n := 0
	second := proxy.HoldRequests(func(request []byte) bool {
		if isSave(request) {
			n++
		}
		return isSave(request) && n == 2
	})
	saved := make(chan error, 1)
	go func() { saved <- r.memory.Save(t.Context(), "q", "re: q") }()
	lost.Wait(1)
	second.Wait(1)
	other.wantHistory(t, "first", "q")
	must(t, other.memory.Clear(t.Context())) // the first copy has released the lock
	must(t, other.memory.Save(t.Context(), "next", "re: next"))
	second.Release()
	if err := <-saved; !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrLost) {
		t.Errorf("Save: %v, want ErrOutcomeUnknown alone", err)
	}
	for _, op := range seen.all {
		if op.Name == distlock.OpLost {
			t.Errorf("a lease is lost: %v", op.Err)
		}
	}
	other.wantHistory(t, "next")
	r.wantFree(t)
}

// A Save that is refused leaves the lock to its lease, which may get a higher token.
func TestSave_S2_refused_keepsTheLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, redis.Options{}, nil, nil)
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
	r := newRig(t, redis.Options{Addr: server.Addr()}, &distlock.Options{Observer: seen}, nil)
	must(t, r.memory.Save(t.Context(), "first", "re: first"))
	_, err := server.Do("ACL", "SETUSER", "default", "-setrange")
	must(t, err)
	must(t, r.memory.Save(t.Context(), "q", "re: q"))
	if release := seen.of(t, distlock.OpRelease); release.Outcome != distlock.OutcomeRefused {
		t.Fatalf("the release: %+v", release)
	}
	r.wantHistory(t, "first", "q")
	_, err = server.Do("ACL", "SETUSER", "default", "+setrange")
	must(t, err)
	must(t, r.memory.Save(t.Context(), "next", "re: next")) // the clean-up has released the lock
	r.wantHistory(t, "first", "q", "next")
}

// While the slot of the session moves, the Save waits. Then it is stored once, and the lock is
// free.
func TestSave_slotMovesOnCluster_storedOnce(t *testing.T) {
	t.Parallel()
	cluster := servers.StartCluster(t)
	r := newRigOver(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}), nil, nil)
	must(t, r.memory.Save(t.Context(), "first", "re: first"))
	for _, moved := range []string{r.log(), r.lock(), r.mark()} {
		finish := cluster.BeginMove(r.log(), moved)
		timer := time.AfterFunc(500*time.Millisecond, finish)
		must(t, r.memory.Save(t.Context(), moved, "re: "+moved))
		timer.Stop()
		finish()
		if state, err := r.locker.Inspect(t.Context(), r.key); err != nil || state.Held {
			t.Errorf("the lock: %+v, %v", state, err)
		}
	}
	r.wantHistory(t, "first", r.log(), r.lock(), r.mark())
}
