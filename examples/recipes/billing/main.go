// Command billing charges every customer for a month. Any number of instances may run at the same
// time: each instance skips a customer that another instance charges, and comes back later.
// The tables have the primary keys customer (id bigint) and invoice (customer bigint, month text).
//
//	go run ./examples/recipes/billing -month 2026-11 -lock redis://localhost:6379 -database postgres://localhost/app
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	month := flag.String("month", "", "the month to bill, as 2026-11; required")
	flag.Parse()
	if _, err := time.Parse("2006-01", *month); err != nil {
		log.Fatalf("-month: %v", err)
	}
	if err := run(*lock, *database, *month); err != nil {
		log.Fatal(err)
	}
}

func run(lock, database, month string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := lockurl.Open(ctx, lock, &distlock.Options{Namespace: "billing"})
	if err != nil {
		return err
	}
	defer locker.Close(context.Background()) // takes seconds at most
	billed, err := bill(ctx, locker, db, month, 100*time.Millisecond, charge)
	log.Printf("%d customers billed by this instance", billed)
	return err
}

// charge asks the payment provider, which charges once per key. Many know a key for a day only.
func charge(ctx context.Context, customer int64, idempotencyKey string) error {
	log.Printf("customer %d is charged under the key %s", customer, idempotencyKey)
	return nil
}

// bill charges each customer without an invoice, in rounds until no customer is left.
func bill(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, month string, pause time.Duration,
	charge func(ctx context.Context, customer int64, idempotencyKey string) error) (billed int, err error) {
	const idleRounds = 40 // in a row, with pauses of 78 s together: longer than one charge and a TTL + 1 s
	failed := []int64{}   // this run does not repeat their charges
	for before, idle := 0, -1; ; {
		// Instances with one order meet at each customer, so the order is random.
		rows, _ := db.Query(ctx, `SELECT id FROM customer WHERE id <> ALL($2) AND NOT EXISTS (
			SELECT FROM invoice WHERE customer = id AND month = $1) ORDER BY random()`, month, failed)
		customers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if idle++; len(customers) < before {
			idle = 0
		}
		if n := len(customers); err != nil || n == 0 || idle == idleRounds {
			if err == nil && n+len(failed) > 0 {
				err = fmt.Errorf("%d charges failed, %d other customers are left: see the log, then run again", len(failed), n)
			}
			return billed, err
		}
		before = len(customers)
		time.Sleep(time.Duration(idle) * pause) // no pause after progress
		for _, customer := range customers {
			key := fmt.Sprintf("%d-%s", customer, month)
			err := locker.TryDo(ctx, key, func(ctx context.Context) error {
				// Another instance may have charged the customer a moment ago, so look under the lock.
				var n int
				err := db.QueryRow(ctx, `SELECT count(*) FROM invoice WHERE customer = $1 AND month = $2`, customer, month).Scan(&n)
				if err != nil || n > 0 {
					return err
				}
				call, cancel := context.WithTimeout(ctx, 20*time.Second)
				defer cancel()
				if err := charge(call, customer, key); err != nil {
					if ctx.Err() == nil { // else the lease is lost, and the next round looks for the invoice
						failed = append(failed, customer)
					}
					return err
				}
				// After a crash before this line, another instance charges again under the same key.
				tag, err := db.Exec(ctx, `INSERT INTO invoice VALUES ($1, $2) ON CONFLICT DO NOTHING`, customer, month)
				billed += int(tag.RowsAffected())
				return err
			})
			var busy *distlock.BusyError
			if err != nil && !errors.As(err, &busy) {
				log.Printf("customer %d: %v", customer, err) // go on with the next customer
			}
			if ctx.Err() != nil || errors.Is(err, distlock.ErrUnavailable) {
				break
			}
		}
	}
}
