// Package pgstore keeps sessions in PostgreSQL 14 or newer. Package sessionstore states the contract of
// its stores. docs/design/pgstore.md states the protocol: tables, functions, limits, and the reasons.
//
//	if err := pgstore.Migrate(ctx, pool, nil); err != nil { … } // once for each version
//	store, err := pgstore.New(pool, session, codec, nil)
//	memory, err := lockedmemory.New(store, locker, session, nil)
//
// Each call is one function in one transaction, which locks the row of the session. So PostgreSQL
// refuses an older writer, keeps the order, and keeps an exchange whole. A Save is durable before
// it is answered, also where the database has synchronous_commit off.
//
// # Memory and erased text
//
// Retention is that of all stores. PostgreSQL removes nothing by itself: each turn also removes a
// part of the expired data of another session. Removed text stays in the files until VACUUM, in the
// write-ahead log and in backups.
//
// # Rights
//
// The application needs USAGE on the schema and EXECUTE on its functions, see [Migrate]. It needs no
// right to a table.
//
// # Poolers
//
// The store works through PgBouncer in transaction mode: no statement has a name, and no state stays in
// a connection.
package pgstore
