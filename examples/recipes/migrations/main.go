// Command migrations brings the database of a service up to date when an instance starts. One
// instance runs the migrations. The others wait, and then find nothing left to do.
//
//	go run ./examples/recipes/migrations -lock redis://localhost:6379 -database postgres://localhost/app
package main

import (
	"context"
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

// steps lead from one version of the schema to the next. Add to the end, and change nothing before
// it. A step runs in a transaction, so CREATE INDEX CONCURRENTLY needs another way.
var steps = []string{
	`CREATE TABLE customer (id bigint PRIMARY KEY, name text NOT NULL)`,
	`ALTER TABLE customer ADD COLUMN email text`,
	`CREATE INDEX customer_email ON customer (email)`,
}

func main() {
	lock := flag.String("lock", "redis://localhost:6379", "URL of the lock service")
	database := flag.String("database", "postgres://postgres:belugalock@localhost:5432/belugalock", "URL of the database")
	flag.Parse()
	if err := run(*lock, *database); err != nil {
		log.Fatal(err)
	}
}

func run(lock, database string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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

	applied, err := migrate(ctx, locker, db, steps)
	if err != nil {
		return err
	}
	log.Printf("the database is up to date, this instance ran %d migrations", applied)
	return nil // now the service starts
}

// migrate runs the steps that the database lacks, and returns how many.
func migrate(ctx context.Context, locker *distlock.Locker, db *pgxpool.Pool, steps []string) (applied int, err error) {
	err = locker.Do(ctx, "migrations", func(ctx context.Context) error {
		_, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_version (version int PRIMARY KEY)`)
		if err != nil {
			return err
		}
		var version int
		err = db.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM schema_version`).Scan(&version)
		if err != nil {
			return err
		}
		for ; version < len(steps); version++ {
			ran, err := apply(ctx, db, version+1, steps[version])
			if err != nil {
				return fmt.Errorf("migration %d: %w", version+1, err)
			}
			if ran {
				applied++
			}
		}
		return nil
	}, distlock.WithWait(10*time.Minute)) // longer than all migrations together
	return applied, err
}

// apply runs one step and notes the version in one transaction, so a crash leaves a whole step or
// nothing of it. An instance that was paused and has lost the lock may still commit its step, and
// then apply does nothing.
func apply(ctx context.Context, db *pgxpool.Pool, version int, step string) (ran bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// PostgreSQL ends the transaction of a paused instance, because the INSERT of the next one waits.
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '5s'`); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO schema_version (version) VALUES ($1) ON CONFLICT DO NOTHING`, version)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		ran = true
		_, err = tx.Exec(ctx, step)
		return err
	})
	return ran, err
}
