// Command leader is one of many instances of a service, of which one leads: it schedules work until it
// stops. Then another instance leads.
//
//	go run ./examples/recipes/leader -lock redis://localhost:6379 &
//	go run ./examples/recipes/leader -lock redis://localhost:6379    # leads when the first one stops
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
	"github.com/belugalock/belugalock/distlock/election"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
)

const table = `CREATE TABLE IF NOT EXISTS task (id bigserial PRIMARY KEY, leader bigint NOT NULL)`

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	every := flag.Duration("every", time.Second, "the time between two tasks")
	ttl := flag.Duration("ttl", 10*time.Second, "how long the lead outlives a crashed instance")
	flag.Parse()
	if err := run(*lock, *database, *every, *ttl); err != nil {
		log.Fatal(err)
	}
}

func run(lock, database string, every, ttl time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := lockurl.Open(ctx, lock, &distlock.Options{Namespace: "leader", TTL: ttl})
	if err != nil {
		return err
	}
	defer locker.Close(context.Background()) // after election.Run has returned: Close does not wait
	err = locker.Do(ctx, "tables", func(ctx context.Context) error {
		_, err := db.Exec(ctx, table)
		return errors.Join(err, pglock.MigrateFence(ctx, db, nil))
	})
	if err != nil {
		return err
	}

	log.Print("campaigns")
	err = election.Run(ctx, locker, "scheduler", func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, "scheduler")
		log.Printf("leads with token %d", lease.Fence())
		return lead(ctx, db, lease, every)
	})
	if ctx.Err() != nil {
		return nil // SIGTERM: the instance has resigned
	}
	return err
}

// lead works until ctx ends: at SIGTERM, or when the lease is lost. After a loss, election.Run
// campaigns again. After another error, the instance ends, and one that can work leads.
func lead(ctx context.Context, db *pgxpool.Pool, lease *distlock.Lease, every time.Duration) error {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		if err := schedule(ctx, db, lease); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// schedule stores a task. The fence refuses it if a later leader has stored one, also if this process
// was paused and does not know that the lease is lost.
func schedule(ctx context.Context, db *pgxpool.Pool, lease *distlock.Lease) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := pglock.Fence(ctx, tx, lease); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO task (leader) VALUES ($1)`, lease.Fence())
		return err
	})
}
