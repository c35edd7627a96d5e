package pglock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// Ten instances of an application start at once. All of them migrate, and then take a lock.
func TestMigrate_tenAtOnce_allSucceed(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "order"} { // a reserved word
		db := servers.SharedPostgres(t).NewDatabase(t)
		opts := &pglock.Options{Schema: schema}
		var instances sync.WaitGroup
		for range 10 {
			instances.Go(func() {
				pool := newPool(t, db.URL())
				if err := pglock.Migrate(context.Background(), pool, opts); err != nil {
					t.Errorf("Migrate: %v", err)
				}
				locker, err := pglock.New(context.Background(), pool, opts)
				if err != nil {
					t.Errorf("New: %v", err)
					return
				}
				done := locker.Do(context.Background(), "k", func(context.Context) error { return nil })
				if err := errors.Join(done, locker.Close(context.Background())); err != nil {
					t.Errorf("Do and Close: %v", err)
				}
			})
		}
		instances.Wait()
	}
}

// A repetition changes nothing, and loses no lock.
func TestMigrate_repeated_keepsLocks(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	d := drivers(db.URL())(t)
	mustAcquire(t, d, acquire(owner1, time.Minute))
	do(t, db, "UPDATE belugalock.version SET version = 7") // a newer program was here
	before := do(t, db, "SELECT oid, xmin FROM pg_proc WHERE proname = 'acquire_v1'")
	migrate(t, db.URL())
	if after := do(t, db, "SELECT oid, xmin FROM pg_proc WHERE proname = 'acquire_v1'"); after != before {
		t.Errorf("a repeated Migrate has changed a function: %s, then %s", before, after)
	}
	if version := do(t, db, "SELECT version FROM belugalock.version WHERE part = 'lock'"); version != "7" {
		t.Errorf("Migrate of an older program leaves version %s, want 7", version)
	}
	if reply, err := d.Acquire(context.Background(), acquire(owner2, time.Minute)); err != nil || reply.Outcome != driver.Busy {
		t.Errorf("Acquire of a held name: %+v, %v", reply, err)
	}
}

// A Migrate that cannot connect, or lacks a right, has changed nothing: its outcome is known.
func TestMigrate_C_noConnection_refused(t *testing.T) {
	t.Parallel()
	url := grantedTo(t, migrated(t), "app")
	right := pglock.Migrate(context.Background(), newPool(t, url), &pglock.Options{Schema: "mine"})
	if !errors.Is(right, distlock.ErrRefused) {
		t.Errorf("Migrate without a right: %v, want ErrRefused", right)
	}
	for bad, want := range map[string]error{
		strings.Replace(url, "secret", "secreT", 1):          distlock.ErrRefused,
		strings.Replace(url, "?", "x?", 1):                   distlock.ErrRefused, // no such database
		"postgres://app:secret@127.0.0.1:1/x?sslmode=prefer": distlock.ErrUnavailable,
	} {
		err := pglock.Migrate(context.Background(), newPool(t, bad), nil)
		if !errors.Is(err, want) || errors.Is(err, distlock.ErrOutcomeUnknown) || strings.Contains(err.Error(), "secre") {
			t.Errorf("Migrate: %v, want %v", err, want)
		}
	}
}

// Migrate waits for other transactions, and stops with its context.
func TestMigrate_C_otherMigrates_endsWithCtx(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	other := newSession(t, db.URL())
	other.must("BEGIN; SELECT pg_advisory_xact_lock(7809911865962128235)")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := pglock.Migrate(ctx, newPool(t, db.URL()), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Migrate: %v, want the end of its context", err)
	}
	other.must("ROLLBACK")
	migrate(t, db.URL())
}

// The answer to the COMMIT of a Migrate is lost.
func TestMigrate_C_answerLost_isUnknown(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	proxy, url := proxied(t, db)
	dropped := proxy.DropReplies(faultnet.Containing("commit\x00"))
	defer dropped.Stop()
	if err := pglock.Migrate(context.Background(), newPool(t, url), nil); !errors.Is(err, distlock.ErrOutcomeUnknown) {
		t.Errorf("Migrate: %v, want ErrOutcomeUnknown", err)
	}
	migrate(t, db.URL())
}
