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

// Lock and store by URL. Migrate runs once for each version, for example when the service is deployed.
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
	fmt.Println(memory.Load(ctx, ""))
}

// Lock and store over the pool of the application, with the same KeyFunc.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost:5432/app")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := pglock.Migrate(ctx, pool, nil); err != nil {
		panic(err)
	}
	if err := pgstore.Migrate(ctx, pool, nil); err != nil {
		panic(err)
	}
	locker, err := pglock.New(ctx, pool, nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)

	session := lockedmemory.FixedKey("session-123") // a service reads the session from ctx
	store, err := pgstore.New(pool, session, sessionstore.JSON[string]{}, nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(store, locker, session, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(memory.Save(ctx, "Where is my parcel?", "It arrives tomorrow."))
}
