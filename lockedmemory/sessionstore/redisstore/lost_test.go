package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// After a SaveOnce with a known ID, a stale lease is still refused.
func TestStore_S2_knownID_staleLease(t *testing.T) {
	t.Parallel()
	old, next := newRig(t), newRig(t)
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

// A read-only replica may lag behind its master. By its word, no session is gone, no lock has another owner,
// and no turn ID is known: its session may be deleted.
func TestStore_C_laggingReplica_saysReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease, err := r.locker.Acquire(t.Context(), r.key)
	must(t, err)
	replica := servers.StartRedis(t)
	d, err := redisstore.NewDriver(newRig(t, replica).client, nil)
	must(t, err)

	stored := lockedmemory.Place{Fence: lease.Fence(), N: 1}
	access := storedriver.Access{Session: r.key, Lease: lease, Fence: stored.Fence, HistoryUpTo: stored}
	first, known := access, access
	first.FirstAccess = true
	known.Session, known.HistoryUpTo = r.key+" with an exchange", lockedmemory.Place{}
	old := func(a storedriver.Access) storedriver.Access {
		a.Fence, a.HistoryUpTo = stored.Fence-(24*time.Hour).Microseconds(), lockedmemory.Place{}
		return a
	}
	messages := [][]byte{[]byte("q"), []byte("a")}
	write := func(a storedriver.Access) storedriver.Write {
		return storedriver.Write{Access: a, N: 2, Op: strings.Repeat("0", 32)}
	}
	save := func(a storedriver.Access, id string, digest byte) (storedriver.Verdict, error) {
		c := storedriver.Content{Messages: messages, ID: id, Digest: [16]byte{digest}}
		return d.Append(t.Context(), storedriver.Append{Write: write(a), Content: c})
	}
	replace := func(with ...storedriver.Entry) (storedriver.Verdict, error) {
		return d.Replace(t.Context(), storedriver.Replace{Write: write(access), From: stored, To: stored, New: with})
	}
	if v, err := save(known, "id", 0); err != nil || v.Outcome != storedriver.Done {
		t.Fatalf("Save before the failover: %+v, %v", v, err)
	}
	do(t, replica, "REPLICAOF", "127.0.0.1", "1")
	for what, call := range map[string]func() (storedriver.Verdict, error){
		"SaveOnce with a known ID":    func() (storedriver.Verdict, error) { return save(known, "id", 0) },
		"other messages under the ID": func() (storedriver.Verdict, error) { return save(known, "id", 1) },
		"Save after another Save":     func() (storedriver.Verdict, error) { return save(access, "id", 0) },
		"Save, old token":             func() (storedriver.Verdict, error) { return save(old(access), "id", 0) },
		"Replace":                     func() (storedriver.Verdict, error) { return replace() },
		"Replace by another": func() (storedriver.Verdict, error) {
			return replace(storedriver.Entry{Place: stored, Messages: messages})
		},
		"first Save after another one": func() (storedriver.Verdict, error) { return save(first, "", 0) },
		"first Save, old token":        func() (storedriver.Verdict, error) { return save(old(first), "", 0) },
		"Load, old token": func() (storedriver.Verdict, error) {
			page, err := d.Read(t.Context(), storedriver.Read{Access: old(first), Limit: 1})
			return page.Verdict, err
		},
	} {
		if v, err := call(); !errors.Is(err, driver.ErrTemporary) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: outcome %d, %v; want READONLY", what, v.Outcome, err)
		}
	}
}
