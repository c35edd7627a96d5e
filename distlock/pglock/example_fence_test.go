package pglock_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
)

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
