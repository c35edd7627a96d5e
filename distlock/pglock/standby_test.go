package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/testservers"
)

// The server answers a commit whose wait for the standby was cancelled with success and a warning. The
// driver may not believe it, also if the database hides warnings.
func TestAcquire_S1_waitForStandbyCancelled_isUnknown(t *testing.T) {
	pair := testservers.StartPostgresPair(t, true)
	db := pair.Primary.NewDatabase(t)
	migrate(t, db.URL())
	pair.AwaitStandby()
	for _, messages := range []string{"notice", "error"} {
		d := drivers(db.URL() + "&client_min_messages=" + messages)(t)
		warm := acquire(owner3, time.Minute)
		warm.Name.Key = "warm" + messages
		if _, err := d.Acquire(context.Background(), warm); err != nil {
			t.Fatal(err)
		}
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

// A standby answers no call with "no".
func TestDriver_C_onStandby_neverNo(t *testing.T) {
	pair := testservers.StartPostgresPair(t, false)
	db := pair.Primary.NewDatabase(t)
	migrate(t, db.URL())
	pair.AwaitStandby()
	d := drivers(pair.Standby.URL(db.Name()))(t)
	_, acquired := d.Acquire(context.Background(), acquire(owner1, time.Minute))
	_, released := d.Release(context.Background(), driver.ReleaseRequest{Name: name, Owner: owner1})
	extended := d.Extend(context.Background(), []driver.ExtendRequest{{Name: name, Owner: owner1, TTL: time.Minute}})[0].Err
	for call, err := range map[string]error{"Acquire": acquired, "Release": released, "Extend": extended} {
		if !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
			t.Errorf("%s on a standby: %v, want ErrTemporary", call, err)
		}
	}
}
