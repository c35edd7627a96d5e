package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{"endless": child.Role(endless)})
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

type config struct {
	Lock, Database string
	Slot           time.Time
}

// endless is an instance whose job does not end. It tells its parent when the job begins.
func endless(ctx context.Context, parent *child.Line, c config) error {
	return instance(ctx, c, func(ctx context.Context) error {
		if err := parent.Send("begun"); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// instance runs one slot of a minute with a Locker and a pool of its own. The report follows the work.
func instance(ctx context.Context, c config, work func(context.Context) error) error {
	return connected(ctx, c, func(locker *distlock.Locker, db *pgxpool.Pool) error {
		return once(ctx, locker, db, "report", c.Slot.Add(-time.Minute), c.Slot, after(work))
	})
}

// after is the job that writes the report when some work has succeeded.
func after(work func(context.Context) error) job {
	return func(ctx context.Context, after, until time.Time) (func(context.Context, pgx.Tx) error, error) {
		if err := work(ctx); err != nil {
			return nil, err
		}
		return report(ctx, after, until)
	}
}

func nothing(context.Context) error { return nil }

// wantReports fails unless the reports cover these moments, one after the other.
func wantReports(t *testing.T, c config, moments ...time.Time) {
	t.Helper()
	rows, err := recipetest.Pool(t, c.Database).Query(t.Context(), `SELECT after, until FROM report ORDER BY after`)
	if err != nil {
		t.Fatal(err)
	}
	type period struct{ After, Until time.Time }
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[period])
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got {
		if len(got) != len(moments)-1 || !p.After.Equal(moments[i]) || !p.Until.Equal(moments[i+1]) {
			t.Fatalf("the reports are of %v, want %v", got, moments)
		}
	}
	if len(got) == 0 {
		t.Fatal("there is no report")
	}
}

func connected(ctx context.Context, c config, do func(*distlock.Locker, *pgxpool.Pool) error) error {
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
	return do(locker, db)
}

// withTables has a slot of a database that has the tables of the recipe now.
func withTables(t *testing.T, lock, database string) config {
	t.Helper()
	db := recipetest.Pool(t, database)
	_, err := db.Exec(t.Context(), tables)
	if err := errors.Join(err, pglock.MigrateFence(t.Context(), db, nil)); err != nil {
		t.Fatal(err)
	}
	return config{Lock: lock, Database: database, Slot: time.Now().Truncate(time.Second)}
}

func setUp(t *testing.T) config {
	t.Helper()
	return withTables(t, servers.SharedRedis(t).URL(), servers.SharedPostgres(t).NewDatabase(t).URL())
}

// The first run of each slot fails, so another instance runs the job again, and then no other does.
func TestOnce_manyInstances_oneRunPerSlot(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, lock, database string) {
		c := withTables(t, lock, database)
		moments := []time.Time{c.Slot}
		for range 3 {
			c.Slot = c.Slot.Add(time.Minute)
			moments = append(moments, c.Slot)
			var runs, done, failed, running atomic.Int32
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					err := instance(t.Context(), c, func(context.Context) error {
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
		wantReports(t, c, moments...)
	})
}

// kill starts an instance whose job does not end, calls wait when the job has begun, and kills the
// instance when wait has returned.
func kill(t *testing.T, c config, wait func()) {
	t.Helper()
	killed, err := child.StartRole(t.Context(), "endless", c, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer killed.Close()
	var begun string
	if err := killed.ReceiveWithin(30*time.Second, &begun); err != nil {
		t.Fatal(err)
	}
	wait()
	killed.Kill()
	<-killed.Done()
}

// runSchedule runs the job of an hourly slot in an instance of its own, and returns the slot that
// the instance has done, and how often the job ran.
func runSchedule(t *testing.T, c config, work func() error) (slot time.Time, runs int) {
	t.Helper()
	err := connected(t.Context(), c, func(locker *distlock.Locker, db *pgxpool.Pool) error {
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		defer ended.Wait()
		defer cancel()
		ended.Go(func() {
			schedule(ctx, locker, db, time.Hour, after(func(context.Context) error {
				runs++
				return work()
			}))
		})
		servers.Await(t, 60*time.Second, "no slot is done", func() bool {
			return db.QueryRow(ctx, `SELECT until FROM report`).Scan(&slot) == nil
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slot, runs
}

// All instances have died in the slot. The next one starts after the time of the slot.
func TestSchedule_lateStart_joinsTheSlot(t *testing.T) {
	c := setUp(t)
	c.Lock += "?ttl=1s"
	c.Slot = time.Now().Add(-margin).Truncate(time.Hour)
	kill(t, c, func() {})
	slot, runs := runSchedule(t, c, func() error { return nil })
	if slot.Before(c.Slot) || runs != 1 {
		t.Errorf("the slot %s was done in %d runs", slot, runs)
	}
}

// A row of the time before the slot may be committed after it.
func TestSchedule_leavesTimeForLateWrites(t *testing.T) {
	err := connected(t.Context(), setUp(t), func(locker *distlock.Locker, db *pgxpool.Pool) error {
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		schedule(ctx, locker, db, time.Second, func(ctx context.Context, after, until time.Time) (func(context.Context, pgx.Tx) error, error) {
			if passed := time.Since(until); passed < margin {
				t.Errorf("the job begins %s after its slot", passed)
			}
			if runs++; runs == 3 {
				cancel()
			}
			return report(ctx, after, until)
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Redis is down at the time of the slot.
func TestSchedule_redisDown_slotIsRepeated(t *testing.T) {
	c, redis := setUp(t), servers.StartRedis(t)
	c.Lock = redis.URL() + "?ttl=1s"
	redis.Kill()
	restarted := time.AfterFunc(3*time.Second, redis.Restart)
	defer restarted.Stop()
	if _, runs := runSchedule(t, c, func() error { return nil }); runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// Jobs fail, also the first one. The next run covers their time. Then an instance with a late clock runs nothing.
func TestOnce_failedSlots_nextRunCoversThem(t *testing.T) {
	c := setUp(t)
	moments := []time.Time{c.Slot.Add(-time.Minute)}
	for range 2 {
		failed := c
		if err := instance(t.Context(), failed, func(context.Context) error { return errors.New("no report") }); err == nil {
			t.Error("no error")
		}
		c.Slot = c.Slot.Add(time.Minute)
		for _, at := range []config{c, failed} {
			if err := instance(t.Context(), at, nothing); err != nil {
				t.Fatal(err)
			}
		}
		moments = append(moments, c.Slot)
		c.Slot = c.Slot.Add(time.Minute)
	}
	wantReports(t, c, moments...)
}

// The lock is lost in a long job, and another instance runs the next slot. The late report is refused.
func TestOnce_S2_lostLock_oneReport(t *testing.T) {
	c := setUp(t)
	begin, next := c.Slot.Add(-time.Minute), c.Slot.Add(time.Minute)
	err := connected(t.Context(), c, func(locker *distlock.Locker, db *pgxpool.Pool) error {
		late := func(ctx context.Context, after, until time.Time) (func(context.Context, pgx.Tx) error, error) {
			if _, err := servers.SharedServer().Do("FLUSHALL"); err != nil {
				return nil, err
			}
			err := connected(t.Context(), c, func(locker *distlock.Locker, db *pgxpool.Pool) error {
				return once(t.Context(), locker, db, "report", begin, next, report)
			})
			if err != nil {
				return nil, err
			}
			return report(ctx, after.Add(time.Second), until) // another key than the other's
		}
		return once(t.Context(), locker, db, "report", begin, c.Slot, late)
	})
	if !errors.Is(err, distlock.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	if err := instance(t.Context(), c, nothing); err != nil {
		t.Fatal(err)
	}
	wantReports(t, c, begin, next)
}
