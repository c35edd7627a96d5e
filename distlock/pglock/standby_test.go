package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The server answers a commit whose wait for the standby was cancelled with success and a warning. The
// driver may not believe it, also if the database hides warnings.
func TestAcquire_S1_waitForStandbyCancelled_isUnknown(t *testing.T) {
	pair := servers.StartPostgresPair(t, true)
	db := pair.Primary.NewDatabase(t)
	migrate(t, db.URL())
	pair.AwaitStandby()
	for _, messages := range []string{"notice", "error"} {
		d := drivers(db.URL() + "&client_min_messages=" + messages)(t)
		warm := acquire(owner3, time.Minute)
		warm.Name.Key = "warm" + messages
		mustAcquire(t, d, warm)
		pair.Standby.Pause()
		req := acquire(owner1, time.Minute)
		req.Name.Key = messages
		failed := make(chan error)
		go func() {
			_, err := d.Acquire(context.Background(), req)
			failed <- err
		}()
		for do(t, db, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%acquire_v1%'") != "t" {
		}
		err := <-failed
		pair.Standby.Resume()
		if err == nil || !driver.MayHaveEffect(err) {
			t.Errorf("Acquire whose commit was cancelled, with messages from %s: %v, want an unknown outcome", messages, err)
		}
	}
}

// A handoff waits for a standby that is cut off. When that wait is cancelled, a waiter that polls sees the
// handoff, which the promoted standby lacks.
func TestAcquire_S1_polledHandoffNotOnStandby_oneHolder(t *testing.T) {
	pair := servers.StartPostgresPair(t, true)
	db := pair.Primary.NewDatabase(t)
	migrate(t, db.URL())
	ctx := t.Context()
	lockers := func(url string) *distlock.Locker {
		locker, err := pglock.New(ctx, newPool(t, url), &pglock.Options{Options: distlock.Options{
			Namespace: name.Namespace, TTL: time.Minute, Wait: 30 * time.Second}})
		must(t, err)
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		return locker
	}
	for range 50 { // others that listen, so the waiter polls
		newSession(t, db.URL()).must("SELECT pg_advisory_lock_shared(1818586987, 1)")
	}
	holder, waiter := drivers(db.URL())(t), lockers(db.URL())
	mustAcquire(t, holder, acquire(owner1, 3*time.Second))
	pair.AwaitStandby()
	pair.Detach()
	defer func() { // the clean-up of the test goes on
		_, _ = pair.Primary.Do("ALTER SYSTEM SET synchronous_standby_names = ''")
		_, _ = pair.Primary.Do("SELECT pg_reload_conf()")
	}()
	leases := make(chan *distlock.Lease, 1)
	go func() {
		lease, err := waiter.Acquire(ctx, name.Key)
		if err == nil {
			leases <- lease
		}
	}()
	servers.Await(t, 10*time.Second, "the waiter is in the queue", func() bool {
		return do(t, db, "SELECT count(*) FROM belugalock.waiter") == "1"
	})
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := holder.Release(short, driver.ReleaseRequest{Name: name, Owner: owner1}); !driver.MayHaveEffect(err) {
		t.Fatalf("a release whose wait was cancelled: %v, want an unknown outcome", err)
	}
	servers.Await(t, 10*time.Second, "the waiter has seen the handoff", func() bool {
		return len(leases) > 0 ||
			do(t, db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%acquire_v1%'") == "1"
	})
	pair.Promote()
	must(t, second(lockers(pair.Standby.URL(db.Name())).Acquire(ctx, name.Key)))
	select {
	case lease := <-leases:
		if err := lease.Err(); err == nil {
			t.Error("two holders: the waiter believes a handoff that the promoted standby lacks")
		}
	default:
	}
}
