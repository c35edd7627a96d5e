// Command leader is one of many instances of a service, of which one leads and stores prices.
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

const name = "prices" // of the election
const table = `CREATE TABLE IF NOT EXISTS price (id bigserial PRIMARY KEY, leader bigint NOT NULL, cents bigint NOT NULL)`

type source func(context.Context) (cents int64, err error)

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	every := flag.Duration("every", time.Second, "the time between two prices")
	ttl := flag.Duration("ttl", 10*time.Second, "how long the lead outlives a crashed instance")
	flag.Parse()
	if err := run(*lock, *database, *every, *ttl); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err) // SIGTERM is no failure: context.Canceled in the queue, and nil after a term
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
	defer locker.Close(context.Background()) // after election.Run has returned: Close does not wait for it
	if err := locker.Do(ctx, "tables", func(ctx context.Context) error {
		_, err := db.Exec(ctx, table)
		return errors.Join(err, pglock.MigrateFence(ctx, db, nil))
	}); err != nil {
		return err
	}
	log.Print("campaigns")
	return election.Run(ctx, locker, name, func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, name) // always there, under the name of Run
		log.Printf("leads with token %d", lease.Fence())
		return lead(ctx, db, lease, every, fetch)
	})
}

// fetch stands for a slow service. A later answer is higher, so the test finds an older one.
func fetch(context.Context) (int64, error) { return time.Now().UnixNano(), nil }

// lead works until ctx ends: at SIGTERM, or when the lease is lost. It repeats a failed update.
func lead(ctx context.Context, db *pgxpool.Pool, lease *distlock.Lease, every time.Duration, fetch source) error {
	for success := time.Now(); ; {
		err := update(ctx, db, lease, fetch)
		switch {
		case ctx.Err() != nil:
			return nil // not the error of an update that ctx has cut off
		case err == nil:
			success = time.Now()
		case errors.Is(err, distlock.ErrLost), time.Since(success) > 30*time.Second:
			return err // election.Run campaigns again after ErrLost, and returns any other error
		default:
			log.Printf("the update is repeated: %v", err)
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}

// update shows the token before it fetches. From then on, the fence refuses each older leader.
func update(ctx context.Context, db *pgxpool.Pool, lease *distlock.Lease, fetch source) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a call that hangs must not keep the lead
	defer cancel()
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return pglock.Fence(ctx, tx, lease) }); err != nil {
		return err
	}
	cents, err := fetch(ctx) // slow, so outside the transaction
	if err != nil {
		return err
	}
	return store(ctx, db, lease, cents)
}

// store fails with distlock.ErrLost if a later leader has shown its token.
func store(ctx context.Context, db *pgxpool.Pool, lease *distlock.Lease, cents int64) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := pglock.Fence(ctx, tx, lease); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO price (leader, cents) VALUES ($1, $2)`, lease.Fence(), cents)
		return err
	})
}
