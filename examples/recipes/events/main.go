// Command events applies events that a queue delivers at least once, each event exactly once. A lock
// per account puts its events in a row. Stdin is the queue, and stdout takes the acknowledgements.
//
//	go run ./examples/recipes/events -lock redis://localhost:6379 < events.jsonl
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
)

const tables = `
	CREATE TABLE IF NOT EXISTS account (id text PRIMARY KEY, balance bigint NOT NULL);
	CREATE TABLE IF NOT EXISTS processed (event text PRIMARY KEY)`

// Event is one delivery, such as {"ID": "e1", "Account": "alice", "Amount": 10}. Deliveries of one
// event have one ID, the idempotency key.
type Event struct {
	ID, Account string
	Amount      int64
}

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	flag.Parse()
	if err := run(context.Background(), *lock, *database, os.Stdin, os.Stdout, book); !errors.Is(err, io.EOF) {
		log.Fatal(err)
	}
}

// run returns io.EOF at the end of the queue.
func run(ctx context.Context, lock, database string, queue io.Reader, acks io.Writer, handle handler) error {
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
	err = locker.Do(ctx, "tables", func(ctx context.Context) error {
		_, err := db.Exec(ctx, tables)
		return errors.Join(err, pglock.MigrateFence(ctx, db, nil))
	})
	if err != nil {
		return err
	}
	for events := json.NewDecoder(queue); ctx.Err() == nil; {
		var e Event
		if err := events.Decode(&e); err != nil {
			return err
		}
		if err := process(ctx, locker, db, e, handle); err != nil { // busy, lost, or a server is down
			log.Printf("event %s is not acknowledged, so the queue delivers it again: %v", e.ID, err)
			continue
		}
		fmt.Fprintln(acks, e.ID)
	}
	return ctx.Err()
}

type handler func(ctx context.Context, balance int64, e Event) (int64, error)

// book may be slow, and ask other services.
func book(_ context.Context, balance int64, e Event) (int64, error) { return balance + e.Amount, nil }

// process handles an event, or does nothing for a duplicate.
func process(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, e Event, handle handler) error {
	return locker.Do(ctx, "account-"+e.Account, func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, "account-"+e.Account)
		var done bool
		var balance int64
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, lease); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM processed WHERE event = $1),
				coalesce((SELECT balance FROM account WHERE id = $2), 0)`, e.ID, e.Account).Scan(&done, &balance)
		})
		if err != nil || done {
			return err
		}
		if balance, err = handle(ctx, balance, e); err != nil {
			return err
		}
		// The key and the result are stored together, unless a later lease has read the balance.
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, lease); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `INSERT INTO processed (event) VALUES ($1)`, e.ID); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `INSERT INTO account (id, balance) VALUES ($1, $2)
				ON CONFLICT (id) DO UPDATE SET balance = excluded.balance`, e.Account, balance)
			return err
		})
	})
}
