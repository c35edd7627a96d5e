package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// calls counts the statements that call a function for a lock or a session. A sweep comes when it likes.
type calls struct{ n atomic.Int64 }

func (c *calls) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	is := func(name string) bool { return strings.Contains(data.SQL, name) }
	if is("_v1") && !is("version_v1") && !is("sweep_v1") {
		c.n.Add(1)
	}
	return ctx
}

func (*calls) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A Save outside a turn takes two statements if lock and store were given the same pool, or a
// driver that shares its server. Otherwise it takes three.
func TestSave_outsideTurn_twoStatements(t *testing.T) {
	t.Parallel()
	db := newRig(t).db
	must(t, pglock.Migrate(t.Context(), connect(t, db.URL()), &pglock.Options{Schema: "other"}))
	count := &calls{}
	counting := func() *pgxpool.Pool {
		config := returned(pgxpool.ParseConfig(db.URL()))(t)
		config.ConnConfig.Tracer = count
		pool := returned(pgxpool.NewWithConfig(context.Background(), config))(t)
		t.Cleanup(pool.Close)
		return pool
	}
	pool := counting()
	locker := func(d driver.Driver) *distlock.Locker {
		l := returned(distlock.New(d, nil))(t)
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		return l
	}
	over := func(pool *pgxpool.Pool) storedriver.Driver { return returned(pgstore.NewDriver(pool, nil))(t) }
	locks := returned(pglock.NewDriver(t.Context(), pool, nil))(t)
	own := locker(locks)
	other := locker(returned(pglock.NewDriver(t.Context(), pool, &pglock.Options{Schema: "other"}))(t))
	for name, c := range map[string]struct {
		locker *distlock.Locker
		store  storedriver.Driver
		want   int64
	}{
		"same pool":       {own, over(pool), 2},
		"beside the lock": {own, returned(pgstore.NewColocatedDriver(locks, nil))(t), 2},
		"another pool":    {own, over(counting()), 3},
		"another schema":  {other, over(pool), 3},
	} {
		key := lockedmemory.FixedKey(name)
		store := returned(sessionstore.New(c.store, key, sessionstore.JSON[string]{}, nil))(t)
		memory := returned(lockedmemory.New(store, c.locker, key, nil))(t)
		for n := range 3 {
			before := count.n.Load()
			must(t, memory.Save(t.Context(), "q", "a"))
			if got := count.n.Load() - before; got != c.want {
				t.Errorf("%s: Save %d takes %d statements, want %d", name, n, got, c.want)
			}
		}
	}
}

// lease is one of a Locker beside the rig.
func (r *rig) lease() *distlock.Lease {
	r.Helper()
	locker := returned(pglock.New(r.Context(), r.pool, nil))(r)
	r.Cleanup(func() { _ = locker.Close(context.Background()) })
	return returned(locker.Acquire(r.Context(), "s"))(r)
}

// last appends the last exchange of a lease.
func (r *rig) last(ctx context.Context, lease *distlock.Lease, n int64) (storedriver.Verdict, error) {
	w := r.write("s", lease.Fence(), n)
	w.Lease, w.FirstAccess = lease, true
	return r.Append(lastwrite.With(ctx, lease, nil), storedriver.Append{Write: w, Content: content(fmt.Sprint(n))})
}

// An error of the release undoes the release alone.
func TestRelease_fails_exchangeStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.lease()
	r.do("ALTER FUNCTION release_v1 RENAME TO gone")
	r.is(storedriver.Done)(r.last(t.Context(), lease, 1))
	if err := lease.Err(); err != nil {
		t.Errorf("the lease: %v", err)
	}
	r.do("ALTER FUNCTION gone RENAME TO release_v1")
	r.is(storedriver.Done)(r.last(t.Context(), lease, 2))
	if got := r.texts("s"); lease.Err() == nil || len(got) != 2 {
		t.Errorf("the lease: %v; %q", lease.Err(), got)
	}
}

// Another transaction has the row of the lease. The last Save does not wait for it, and leaves the
// lock.
func TestRelease_leaseRowLocked_onlyAppends(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.lease()
	unlock := r.locked("lease")
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	r.is(storedriver.Done)(r.last(ctx, lease, 1))
	if err := lease.Err(); err != nil {
		t.Errorf("the lease: %v", err)
	}
	unlock()
	must(t, lease.Release(t.Context()))
}

// The release hands the lock off to a waiter of another process, and notifies it.
func TestRelease_L_waiterElsewhere_notified(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.lease()
	other := returned(pglock.New(t.Context(), r.pool, nil))(t)
	defer other.Close(t.Context())
	granted := make(chan *distlock.Lease)
	go func() {
		next, err := other.Acquire(t.Context(), "s")
		if err != nil {
			t.Error(err)
		}
		granted <- next
	}()
	servers.Await(t, time.Minute, "a waiter", func() bool { return r.do("SELECT waiting FROM lease") == "1" })
	listens := returned(r.pool.Acquire(t.Context()))(t)
	defer listens.Release()
	returned(listens.Exec(t.Context(), `LISTEN "`+r.do("SELECT channel FROM waiter")+`"`))(t)
	r.is(storedriver.Done)(r.last(t.Context(), lease, 1))
	if lease.Err() == nil {
		t.Error("the lease goes on")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	// ⚑ The pool of the application would hide that a standby lacks the handoff.
	if message, err := listens.Conn().WaitForNotification(ctx); err != nil || strings.Contains(message.Payload, ":") {
		t.Errorf("notified of %+v, %v; want the owner without a grant", message, err)
	}
	must(t, (<-granted).Release(t.Context()))
}

// Another transaction has the row of the session. Each call gives up soon, and the last Save leaves the lock.
func TestLockTimeout_sessionRowLocked_temporary(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.lease()
	fence := lease.Fence()
	r.saves("s", fence, 1, "x")
	unlock := r.locked("session")
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	_, err := r.last(ctx, lease, 2)
	_, err2 := r.Append(ctx, storedriver.Append{Write: r.write("s", fence, 2), Content: content("y")})
	_, err3 := r.Clear(ctx, storedriver.Clear{Write: r.write("s", fence, 2)})
	access := r.write("s", fence, 1).Access
	_, err4 := r.Read(ctx, storedriver.Read{Access: access, Limit: 1})
	for what, err := range map[string]error{"the last Save": err, "Save": err2, "Clear": err3, "Load": err4} {
		if !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	unlock()
	if err := lease.Err(); err != nil {
		t.Errorf("the lease: %v", err)
	}
	r.is(storedriver.Done)(r.last(t.Context(), lease, 2))
}

// A refused Save leaves the lock alone.
func TestRelease_refusedSave_lockHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.lease()
	r.saves("s", lease.Fence()+1000, 1, "later")
	r.is(storedriver.Stale)(r.last(t.Context(), lease, 1))
	if info := r.do("SELECT released FROM lease"); lease.Err() != nil || info != "f" {
		t.Errorf("the lease: %v; released: %s", lease.Err(), info)
	}
}
