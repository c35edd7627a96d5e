// Command cron runs a job at fixed times, once per time however many instances run. If the instance
// that runs the job dies or fails, another instance runs the job.
//
//	go run ./examples/recipes/cron -lock redis://localhost:6379 -every 1m
package main

import (
	"context"
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

// pause is the time between two attempts at a slot.
const pause = 5 * time.Second

const table = `CREATE TABLE IF NOT EXISTS cron (job text PRIMARY KEY, done timestamptz NOT NULL)`

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
	schedule(ctx, locker, db, every, report)
	return nil
}

// schedule runs the job of each slot until ctx ends. An instance that starts late joins the present
// slot. The schedule leaves out slots that pass during an earlier slot.
func schedule(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, every time.Duration,
	work func(ctx context.Context, slot time.Time) error) {
	for {
		slot := time.Now().UTC().Truncate(every)
		for {
			err := once(ctx, locker, db, "report", slot, work)
			if err == nil {
				break
			}
			log.Printf("slot %s, next attempt in %s: %v", slot.Format(time.DateTime), pause, err)
			if !sleep(ctx, pause) {
				return
			}
		}
		if !sleep(ctx, time.Until(slot.Add(every))) {
			return
		}
	}
}

// sleep returns false if ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func report(_ context.Context, slot time.Time) error {
	log.Printf("the report of %s", slot.Format(time.TimeOnly))
	return nil
}

// once runs a job for a slot, a time of its schedule, unless the slot is done. All instances call
// once for each slot, and repeat it after an error. A waiter finds the slot done, or takes over from
// a dead instance. If an instance dies between the job and the note, the job runs again.
func once(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, job string, slot time.Time,
	work func(ctx context.Context, slot time.Time) error) error {
	return locker.Do(ctx, job, func(ctx context.Context) error {
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
	}, distlock.WithWait(-1)) // no limit but ctx, because only a waiter takes over
}
