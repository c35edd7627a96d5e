// Command cron runs a job at fixed times, once per time however many instances run. If the instance
// that runs the job dies or fails, another one runs it.
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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

const table = `CREATE TABLE IF NOT EXISTS cron (job text PRIMARY KEY, done timestamptz NOT NULL)`

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	every := flag.Duration("every", time.Minute, "the time between two runs")
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
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = locker.Close(ctx)
	}()
	err = locker.Do(ctx, "table", func(ctx context.Context) error {
		_, err := db.Exec(ctx, table)
		return err
	})
	if err != nil {
		return err
	}
	for {
		slot := time.Now().Truncate(every).Add(every)
		select {
		case <-time.After(time.Until(slot)):
		case <-ctx.Done():
			return nil
		}
		if err := once(ctx, locker, db, "report", slot, report); err != nil {
			log.Print(err)
		}
	}
}

func report(_ context.Context, slot time.Time) error {
	log.Printf("the report of %s", slot.Format(time.TimeOnly))
	return nil
}

// once runs a job for a slot, a time of its schedule, unless an instance has done so. All instances
// call it for each slot. Those that wait find the slot done, or take over from a dead instance. If
// an instance dies after the job and before the note, the job runs again for the same slot.
func once(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, job string, slot time.Time,
	work func(ctx context.Context, slot time.Time) error) error {
	err := locker.Do(ctx, job, func(ctx context.Context) error {
		var done bool
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM cron WHERE job = $1 AND done >= $2)`, job, slot).Scan(&done)
		if err != nil || done {
			return err
		}
		if err := work(ctx, slot); err != nil {
			return err
		}
		_, err = db.Exec(ctx, `INSERT INTO cron (job, done) VALUES ($1, $2)
			ON CONFLICT (job) DO UPDATE SET done = greatest(cron.done, excluded.done)`, job, slot)
		return err
	})
	var busy *distlock.BusyError
	if errors.As(err, &busy) {
		return nil // the job is longer than Options.Wait, and its instance is alive
	}
	return err
}
