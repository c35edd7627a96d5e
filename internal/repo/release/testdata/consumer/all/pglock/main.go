// Pglock holds a lock in PostgreSQL.
package main

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locker, err := pglock.New(ctx, pool, nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer locker.Close(ctx)
	if err := locker.Do(ctx, "orders", func(context.Context) error { return nil }); err != nil {
		log.Print(err)
	}
}
