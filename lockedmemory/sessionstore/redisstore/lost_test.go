package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A Save outside a turn asks for the lock first. If Redis does not answer, nothing was written.
// Without a cancelled or expired ctx, no error is that of a context.
func TestSave_C_silentRedis_nothingWritten(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		wait    time.Duration
		timeout time.Duration
		ctxOn   bool
	}{
		"default wait":          {0, 0, false},
		"wait 500ms, ctx on":    {500 * time.Millisecond, 0, true},
		"deadline of ctx 500ms": {0, 500 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			r := newRig(t, redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: with.ctxOn}, &distlock.Options{Wait: with.wait}, nil)
			must(t, r.memory.Save(t.Context(), "q", "a"))
			server.Pause()
			defer server.Resume()
			ctx, cancel := context.WithCancel(t.Context())
			late := with.timeout > 0
			if late {
				ctx, cancel = context.WithTimeout(t.Context(), with.timeout)
			}
			defer cancel()
			err := r.memory.Save(ctx, "q2", "a2")
			if errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrUnavailable) == late ||
				errors.Is(err, context.DeadlineExceeded) != late || errors.Is(err, context.Canceled) {
				t.Errorf("Save: %v", err)
			}
		})
	}
}

// A SaveOnce with a known ID succeeds although Redis is full, and shows its token: a stale Save is refused.
func TestStore_S2_knownID_fullMemory(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	old, next := newRig(t, redis.Options{Addr: server.Addr()}, nil, nil), newRig(t, redis.Options{Addr: server.Addr()}, nil, nil)
	must(t, old.memory.SaveOnce(t.Context(), "id", "q", "a"))
	err := old.memory.Turn(t.Context(), func(ctx context.Context) error {
		stale := context.WithoutCancel(ctx)
		old.expire(ctx) // the lease has ended, and its process has not noticed
		must(t, next.memory.Turn(t.Context(), func(ctx context.Context) error {
			must(t, next.client.ConfigSet(ctx, "maxmemory", "1").Err())
			if err := next.memory.SaveOnce(ctx, "id", "q", "a"); err != nil {
				t.Errorf("the repeated Save: %v", err)
			}
			must(t, next.client.ConfigSet(ctx, "maxmemory", "0").Err())
			if err := old.store.Save(stale, "stale", "stale"); err == nil {
				t.Errorf("a stale Save was accepted: %q", next.history(t))
			}
			return nil
		}))
		return nil
	})
	t.Log("Turn:", err)
}

// After a SaveOnce with a known ID, a stale lease is still refused.
func TestStore_S2_knownID_staleLease(t *testing.T) {
	t.Parallel()
	old, next := newRig(t, redis.Options{}, nil, nil), newRig(t, redis.Options{}, nil, nil)
	must(t, old.memory.SaveOnce(t.Context(), "id", "q", "a"))
	err := old.memory.Turn(t.Context(), func(ctx context.Context) error {
		old.expire(ctx)
		must(t, next.memory.Save(t.Context(), "q2", "a2"))
		must(t, next.memory.Turn(t.Context(), next.opens))
		if err := old.memory.SaveOnce(ctx, "id", "q", "a"); err != nil {
			t.Log("Save:", err)
		}
		if got, err := old.memory.Load(ctx, ""); err == nil {
			t.Errorf("the first Load under the stale lease was not refused: %q", got)
		}
		return nil
	})
	t.Log("Turn:", err)
}

// While a slot of a Cluster moves, its master rejects scripts. A turn that holds its lock waits for
// the end of the move.
func TestStore_slotMoves_onCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartCluster(t)
	r := newRigOver(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true}), nil, nil)
	memory := r.memory
	must(t, memory.Save(t.Context(), "before", ""))
	for name, do := range map[string]func(ctx context.Context) error{
		"SaveOnce": func(ctx context.Context) error { return memory.SaveOnce(ctx, "id", "q", "a") },
		"Load":     r.opens,
		"Save":     func(ctx context.Context) error { return memory.Save(ctx, "q", "a") },
	} {
		err := memory.Turn(t.Context(), func(ctx context.Context) error {
			finish := cluster.BeginMove(r.log(), r.log())
			defer finish()
			timer := time.AfterFunc(time.Second, finish)
			defer timer.Stop()
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			start := time.Now()
			if err := do(ctx); err != nil {
				t.Errorf("%s: after %s of 20 s: %v", name, time.Since(start).Round(time.Millisecond), err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: Turn: %v", name, err)
		}
	}
}

// A read-only replica may lag behind its master. By its word, no session is gone, no lock has another owner,
// and no turn ID is known: its session may be deleted.
func TestStore_C_laggingReplica_saysReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, redis.Options{}, nil, nil)
	lease, err := r.locker.Acquire(t.Context(), r.key)
	must(t, err)
	replica := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer client.Close()
	d, err := redisstore.NewDriver(client, nil)
	must(t, err)

	stored := lockedmemory.Place{Fence: lease.Fence(), N: 1}
	write := storedriver.Write{N: 2, Op: strings.Repeat("0", 32)}
	write.Access = storedriver.Access{Session: r.key, Lease: lease, Fence: stored.Fence, HistoryUpTo: stored}
	old := write
	old.Fence, old.HistoryUpTo = stored.Fence-(24*time.Hour).Microseconds(), lockedmemory.Place{}
	content := storedriver.Content{Messages: [][]byte{[]byte("q"), []byte("a")}, ID: "question"}
	save := func(w storedriver.Write) (storedriver.Verdict, error) {
		return d.Append(t.Context(), storedriver.Append{Write: w, Content: content})
	}
	saveOther := func(w storedriver.Write) (storedriver.Verdict, error) {
		other := content
		other.Digest[0] = 1
		return d.Append(t.Context(), storedriver.Append{Write: w, Content: other})
	}
	replace := func(w storedriver.Write) (storedriver.Verdict, error) {
		return d.Replace(t.Context(), storedriver.Replace{Write: w, From: stored, To: stored})
	}
	edit := func(w storedriver.Write) (storedriver.Verdict, error) {
		return d.Replace(t.Context(), storedriver.Replace{Write: w, From: stored, To: stored,
			New: []storedriver.Entry{{Place: stored, Messages: content.Messages}}})
	}
	unnamed := func(w storedriver.Write) (storedriver.Verdict, error) {
		w.FirstAccess = true
		return d.Append(t.Context(), storedriver.Append{Write: w, Content: storedriver.Content{Messages: content.Messages}})
	}
	load := func(w storedriver.Write) (storedriver.Verdict, error) {
		w.FirstAccess = true
		page, err := d.Read(t.Context(), storedriver.Read{Access: w.Access, Limit: 1})
		return page.Verdict, err
	}
	known := write
	known.Session = r.key + " with an exchange"
	known.HistoryUpTo = lockedmemory.Place{}
	v, err := save(known)
	must(t, err)
	if v.Outcome != storedriver.Done {
		t.Fatalf("Save before the failover: outcome %d", v.Outcome)
	}
	if _, err := replica.Do("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		call  func(storedriver.Write) (storedriver.Verdict, error)
		write storedriver.Write
	}{
		{"SaveOnce with a known ID", save, known},
		{"SaveOnce of other messages with a known ID", saveOther, known},
		{"Save after another Save", save, write},
		{"Save under an old token", save, old},
		{"Replace", replace, write},
		{"Replace by another exchange", edit, write},
		{"first Save after another one", unnamed, write},
		{"first Save under an old token", unnamed, old},
		{"Load under an old token", load, old},
	} {
		v, err := c.call(c.write)
		if !errors.Is(err, driver.ErrTemporary) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: outcome %d, %v; want READONLY", c.what, v.Outcome, err)
		}
	}
}
