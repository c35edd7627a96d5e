// Command cron runs a job at fixed times, on one of many instances. If it fails or dies, another one runs
// the job. Each run covers the time since the last one, so none is left out.
//
//	go run ./examples/recipes/cron -lock redis://localhost:6379 -every 1m
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
)

const tables = `
	CREATE TABLE IF NOT EXISTS cron (job text PRIMARY KEY, done timestamptz NOT NULL);
	CREATE TABLE IF NOT EXISTS report (after timestamptz PRIMARY KEY, until timestamptz NOT NULL)`
const margin = 5 * time.Second // above the longest transaction that writes rows, and clock differences

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	every := flag.Duration("every", time.Minute, "the time between two slots, counted in UTC: 24h is midnight UTC")
	flag.Parse()
	if err := run(*lock, *database, *every); err != nil {
		log.Fatal(err)
	}
}

func run(lock, database string, every time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := lockurl.Open(ctx, lock, &distlock.Options{Namespace: "cron"})
	if err != nil {
		return err
	}
	defer locker.Close(context.Background()) // takes seconds at most
	err = locker.Do(ctx, "tables", func(ctx context.Context) error {
		_, err := db.Exec(ctx, tables)
		return errors.Join(err, pglock.MigrateFence(ctx, db, nil))
	})
	if err == nil {
		schedule(ctx, locker, db, every, report)
	}
	return err
}

// schedule runs the job of each slot until ctx ends. An instance that starts late joins the present slot.
func schedule(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, every time.Duration, work job) {
	for ctx.Err() == nil {
		slot := time.Now().UTC().Add(-margin).Truncate(every)
		next := slot.Add(every + margin)
		if err := once(ctx, locker, db, "report", slot.Add(-every), slot, work); err != nil && ctx.Err() == nil {
			next = time.Now().Add(5 * time.Second)
			log.Printf("until %s, tried again soon: %v", slot.Format(time.DateTime), err)
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
	}
}

// job works on the time between two moments, and has a deadline: others wait for it. Write stores its result.
type job func(ctx context.Context, after, until time.Time) (write func(ctx context.Context, tx pgx.Tx) error, err error)

func report(_ context.Context, after, until time.Time) (func(context.Context, pgx.Tx) error, error) {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO report (after, until) VALUES ($1, $2)`, after, until)
		return err
	}, nil
}

// once runs a job for the time from its last run, or from first, until a slot. A waiter finds the slot done,
// or takes over. Result and note are stored together, unless a later lease has read the note.
func once(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, name string, first, slot time.Time, work job) error {
	return locker.Do(ctx, name, func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, name)
		var after time.Time
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, lease); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `INSERT INTO cron (job, done) VALUES ($1, $2)
				ON CONFLICT (job) DO UPDATE SET job = excluded.job RETURNING done`, name, first).Scan(&after)
		})
		if err != nil || !after.Before(slot) {
			return err
		}
		write, err := work(ctx, after, slot)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, lease); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE cron SET done = $2 WHERE job = $1`, name, slot); err != nil {
				return err
			}
			return write(ctx, tx)
		})
	}, distlock.WithWait(-1)) // no limit but ctx, because only a waiter takes over
}
