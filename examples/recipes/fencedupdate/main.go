// Command fencedupdate changes a row under a lock so that the database refuses a holder that was
// paused and has lost the lock. The token is in a column of the row; the recipes cron, events and leader have
// pglock.Fence, which needs PostgreSQL and no column.
//
//	go run ./examples/recipes/fencedupdate -lock redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

const table = `CREATE TABLE IF NOT EXISTS product (id bigint PRIMARY KEY, price bigint NOT NULL, fence bigint NOT NULL DEFAULT 0)`

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	flag.Parse()
	if err := run(context.Background(), *lock, *database); err != nil {
		log.Fatal(err)
	}
}

// decision is slow: a model, or another service.
type decision func(ctx context.Context, price int64) (int64, error)

func run(ctx context.Context, lock, database string) error {
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := lockurl.Open(ctx, lock, nil)
	if err != nil {
		return err
	}
	defer locker.Close(context.Background()) // takes seconds at most
	return locker.Do(ctx, "product-1", func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, "product-1")
		_, err := db.Exec(ctx, table+`; INSERT INTO product VALUES (1, 100) ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		return update(ctx, db, lease, 1, func(_ context.Context, price int64) (int64, error) {
			log.Printf("the price is %d, and will be %d", price, price+10)
			return price + 10, nil
		})
	})
}

// update sets the price of a product to that which decide makes of the old one. It reads the price and raises
// the token in one statement, so the row refuses each older holder from the read on. The write fails if a newer
// holder has raised the token. A second read needs <=.
func update(ctx context.Context, db *pgxpool.Pool, lease *distlock.Lease, product int64, decide decision) error {
	var price int64
	err := db.QueryRow(ctx, `UPDATE product SET fence = $1 WHERE id = $2 AND fence < $1 RETURNING price`,
		lease.Fence(), product).Scan(&price)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: a later lease has used product %d, or there is no such product", distlock.ErrLost, product)
	}
	if err != nil {
		return err
	}
	if price, err = decide(ctx, price); err != nil {
		return err
	}
	tag, err := db.Exec(ctx, `UPDATE product SET price = $3 WHERE id = $2 AND fence = $1`, lease.Fence(), product, price)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: a later lease has used product %d", distlock.ErrLost, product)
	}
	return err
}
