// Package pglock keeps locks in PostgreSQL 14 or newer: one row per name, and a queue beside it.
//
// Call [Migrate] once, as a role that may create a schema, then [New] in every program:
//
//	pool, err := pgxpool.New(ctx, "postgres://app@db/app")
//	locker, err := pglock.New(ctx, pool, nil)
//
// Every operation is one statement that calls one function of the schema, so it happens at one moment
// by the server's clock. A grant is on disk before its caller has it. docs/design/postgres.md states
// the tables, the functions, their durability, and the errors.
//
// # Rights
//
// An application needs USAGE on the schema and EXECUTE on its functions, and no right on the tables:
//
//	GRANT USAGE ON SCHEMA belugalock TO app;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO app;
//
// # Connections
//
// A Locker opens at most four connections: two for calls, one for renewals, and one that listens for
// handoffs while there are waiters. They may go through a pooler, such as PgBouncer in transaction mode.
// Such a pooler delivers no notifications, so the last connection then asks for handoffs: every 5 to
// 10 ms for the first waiter of a queue.
package pglock
