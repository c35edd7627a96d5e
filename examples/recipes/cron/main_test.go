package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	childproc.Serve(map[string]childproc.Work{"endless": childproc.Role(endless)})
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}

type config struct {
	Lock, Database string
	Slot           time.Time
}

// endless is an instance whose job does not end. It tells its parent when the job begins.
func endless(ctx context.Context, parent *childproc.Line, c config) error {
	return instance(ctx, c, func(ctx context.Context, _ time.Time) error {
		if err := parent.Send("begun"); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// instance runs one slot with a Locker and a pool of its own.
func instance(ctx context.Context, c config, work func(context.Context, time.Time) error) error {
	db, err := pgxpool.New(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := lockurl.Open(ctx, c.Lock, nil)
	if err != nil {
		return err
	}
	defer locker.Close(context.Background())
	return once(ctx, locker, db, "report", c.Slot, work)
}

func setUp(t *testing.T, backend string) config {
	t.Helper()
	database := testservers.SharedPostgres(t).NewDatabase(t)
	db, err := pgxpool.New(t.Context(), database.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	c := config{Lock: testservers.SharedRedis(t).URL(), Database: database.URL(), Slot: time.Now().Truncate(time.Second)}
	if backend == "postgres" {
		c.Lock = database.URL()
		if err := pglock.Migrate(t.Context(), db, nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// The first run of each slot fails, so another instance runs the job again, and then no other does.
func TestOnce_manyInstances_oneRunPerSlot(t *testing.T) {
	for _, backend := range []string{"redis", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			c := setUp(t, backend)
			for range 3 {
				c.Slot = c.Slot.Add(time.Minute)
				var runs, done, failed, running atomic.Int32
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						err := instance(t.Context(), c, func(context.Context, time.Time) error {
							if running.Add(1) > 1 {
								t.Error("the job runs twice at a time")
							}
							defer running.Add(-1)
							time.Sleep(20 * time.Millisecond) // so that instances meet
							if runs.Add(1) == 1 {
								return errors.New("the first run fails")
							}
							done.Add(1)
							return nil
						})
						if err != nil {
							failed.Add(1)
						}
					})
				}
				all.Wait()
				if done.Load() != 1 || failed.Load() != 1 {
					t.Errorf("the job was done %d times, %d instances failed", done.Load(), failed.Load())
				}
			}
		})
	}
}

func TestOnce_killedInstance_anotherRunsTheJob(t *testing.T) {
	c := setUp(t, "redis")
	c.Lock += "?ttl=1s"
	killed, err := childproc.StartRole(t.Context(), "endless", c, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer killed.Close()
	var begun string
	if err := killed.ReceiveWithin(30*time.Second, &begun); err != nil {
		t.Fatal(err)
	}
	killed.Kill()
	<-killed.Done()
	runs := 0
	err = instance(t.Context(), c, func(context.Context, time.Time) error {
		runs++
		return nil
	})
	if err != nil || runs != 1 {
		t.Errorf("the other instance ran the job %d times, %v", runs, err)
	}
}

// An instance whose clock is late comes to a slot after a later one has run.
func TestOnce_lateClock_doesNotRun(t *testing.T) {
	c := setUp(t, "redis")
	late := c
	c.Slot = c.Slot.Add(time.Minute)
	runs := 0
	for _, at := range []config{c, late} {
		err := instance(t.Context(), at, func(context.Context, time.Time) error {
			runs++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// The lock is lost in a long job, and other instances run the next slot. The late note of the first
// job does not hide theirs.
func TestOnce_lostLock_laterNoteStays(t *testing.T) {
	c := setUp(t, "redis")
	next, runs := c, 0
	next.Slot = c.Slot.Add(time.Minute)
	runNext := func() {
		err := instance(t.Context(), next, func(context.Context, time.Time) error {
			runs++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = instance(t.Context(), c, func(context.Context, time.Time) error {
		if _, err := testservers.SharedServer().Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		runNext()
		return nil
	})
	if runNext(); runs != 1 {
		t.Errorf("the slot ran %d times", runs)
	}
}

func TestOnce_jobLongerThanWait_noFailure(t *testing.T) {
	c := setUp(t, "redis")
	c.Lock += "?wait=50ms"
	unexpected := func(context.Context, time.Time) error { return errors.New("the job runs twice") }
	err := instance(t.Context(), c, func(context.Context, time.Time) error {
		return instance(t.Context(), c, unexpected)
	})
	if err != nil {
		t.Error(err)
	}
}
