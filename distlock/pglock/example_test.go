package pglock_test

import (
	"context"
	"fmt"
	"log"

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
