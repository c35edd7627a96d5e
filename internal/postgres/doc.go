// Package postgres is what the locks and the sessions in PostgreSQL share.
package postgres
