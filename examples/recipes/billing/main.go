// Command billing charges every customer for a month. Any number of instances may run at the same
// time: each one skips the customers that another one charges at the moment.
//
//	go run ./examples/recipes/billing -lock redis://localhost:6379 -database postgres://localhost/app
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

const tables = `
	CREATE TABLE IF NOT EXISTS customer (id bigint PRIMARY KEY);
	CREATE TABLE IF NOT EXISTS invoice (customer bigint, month text, PRIMARY KEY (customer, month))`

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	month := flag.String("month", time.Now().Format("2006-01"), "the month to bill")
	flag.Parse()
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
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = locker.Close(ctx)
	}()
	err = locker.Do(ctx, "tables", func(ctx context.Context) error {
		_, err := db.Exec(ctx, tables)
		return err
	})
	if err != nil {
		return err
	}

	billed, skipped, err := bill(ctx, locker, db, month, charge)
	log.Printf("%d customers billed, %d left to other instances", billed, skipped)
	return err
}

// charge asks the payment provider for the money. The provider does nothing for a key that it has
// seen before.
func charge(ctx context.Context, customer int64, idempotencyKey string) error {
	log.Printf("customer %d is charged under the key %s", customer, idempotencyKey)
	return nil
}

// bill charges each customer without an invoice, except those that another instance holds.
func bill(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, month string,
	charge func(ctx context.Context, customer int64, idempotencyKey string) error) (billed, skipped int, err error) {
	rows, _ := db.Query(ctx, `SELECT id FROM customer ORDER BY id`)
	customers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, 0, err
	}
	for _, customer := range customers {
		key := fmt.Sprintf("%d-%s", customer, month)
		err := locker.TryDo(ctx, key, func(ctx context.Context) error {
			// Another instance may have charged the customer a moment ago, so look under the lock.
			var done bool
			err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM invoice WHERE customer = $1 AND month = $2)`,
				customer, month).Scan(&done)
			if err != nil || done {
				return err
			}
			if err := charge(ctx, customer, key); err != nil {
				return err
			}
			// After a crash before this line, the next run charges again under the same key.
			_, err = db.Exec(ctx, `INSERT INTO invoice (customer, month) VALUES ($1, $2)`, customer, month)
			if err == nil {
				billed++
			}
			return err
		})
		var busy *distlock.BusyError
		switch {
		case err == nil:
		case errors.As(err, &busy):
			skipped++
		default:
			return billed, skipped, fmt.Errorf("customer %d: %w", customer, err)
		}
	}
	return billed, skipped, nil
}
