package pgstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// Lock and store by URL. A program with a pool calls pglock.New and New instead.
func ExampleOpen() {
	ctx := context.Background()
	const url = "postgres://app@localhost:5432/app"
	session := lockedmemory.FixedKey("session-123")
	locker, store, err := pgstore.Open(ctx, url, session, sessionstore.JSON[string]{}, nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx) // and the connections
	memory, err := lockedmemory.New(store, locker, session, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(memory.Save(ctx, "Where is my parcel?", "It arrives tomorrow."))
}

// Migrate runs once for each version, for example when the service is deployed.
func ExampleMigrate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://migration@localhost:5432/app")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	fmt.Println(pglock.Migrate(ctx, pool, nil), pgstore.Migrate(ctx, pool, nil))
}
