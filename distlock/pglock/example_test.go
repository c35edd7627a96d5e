package pglock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
)

func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app:secret@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locker, err := pglock.New(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
		return nil // alone with the conversation, on all machines
	})
	if err != nil {
		log.Print(err)
	}
}

// A deployment calls it once, as a role that may create a schema.
func ExampleMigrate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://owner:secret@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pglock.Migrate(ctx, pool, nil); err != nil {
		log.Fatal(err)
	}
	_, err = pool.Exec(ctx, `GRANT USAGE ON SCHEMA belugalock TO app;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO app`)
	if err != nil {
		log.Fatal(err)
	}
}

// The schema stands in the URL. OpenDriver does not connect.
func ExampleOpenDriver() {
	d, err := pglock.OpenDriver("postgres://app:secret@localhost/app?schema=locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := distlock.New(d, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(context.Background())
	fmt.Println(d.Capabilities().Backend)
	// Output: postgres
}

// A stale holder cannot commit: the database compares the token with that of the last holder.
func ExampleFence() {
	var (
		ctx    context.Context
		pool   *pgxpool.Pool    // of the application
		locker *distlock.Locker // of pglock, redislock or any other backend
	)
	err := locker.Do(ctx, "order-42", func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, "order-42")
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, lease); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = 42")
			return err
		})
	})
	fmt.Println(err)
}

func ExampleTxLock() {
	var (
		ctx  context.Context
		pool *pgxpool.Pool
	)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pglock.TxLock(ctx, tx, "nightly-report"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO reports SELECT current_date ON CONFLICT DO NOTHING")
		return err
	})
	fmt.Println(err)
}

func ExampleNewSessionLock() {
	var (
		ctx  context.Context
		pool *pgxpool.Pool
	)
	session, err := pglock.NewSessionLock(ctx, pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	if err := session.Lock(ctx, "reindex"); err != nil {
		fmt.Println(err)
		return
	}
	defer session.Unlock("reindex")
	work := func(ctx context.Context) error { return nil }
	fmt.Println(work(session.Context())) // ends when the lock is lost
}
