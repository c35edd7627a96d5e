// Package postgres is what the locks and the sessions in PostgreSQL share: a small pool of
// connections of their own, calls of one statement, the kinds of their errors, and the versions of a
// schema. docs/design/postgres.md states the rules.
package postgres
