package pglock_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/distlock/pglock"
)

// These tests show what goes wrong in transactions that check the token in another way than Fence.

// raise is the part of the fence that writes the mark, without its other rules.
const raise = `INSERT INTO belugalock.mark AS m VALUES ('shop', 'k', $1)
	ON CONFLICT (namespace, key) DO UPDATE SET token = excluded.token WHERE m.token <= excluded.token`

// A check that locks nothing is outdated when the transaction writes.
func TestUnfenced_existsLetsStaleWriteCommit(t *testing.T) {
	s := newScene(t)
	paused := s.acquire("k")
	s.commit(s.fence(paused))
	tx, valid := s.begin(pgx.TxOptions{}), false
	const query = "SELECT EXISTS (SELECT FROM belugalock.mark WHERE key = 'k' AND token <= $1)"
	if err := tx.QueryRow(t.Context(), query, paused.Fence()).Scan(&valid); err != nil || !valid {
		t.Fatal(valid, err)
	}

	next := s.takeOver(paused)
	later := s.fence(next)
	s.exec(later, "UPDATE account SET token = $1", next.Fence())
	s.commit(later)

	s.exec(tx, "UPDATE account SET token = $1", paused.Fence())
	s.commit(tx)
	if token := s.do("SELECT token FROM account"); token != fmt.Sprint(paused.Fence()) {
		t.Errorf("the last write has token %s; want the stale %d, otherwise the rule is not needed", token, paused.Fence())
	}
}

// What a transaction has read before it waits for the fence is outdated after the wait.
func TestUnfenced_readBeforeLosesUpdate(t *testing.T) {
	s := newScene(t)
	first := s.acquire("k")
	open := s.fence(first)
	s.exec(open, "UPDATE account SET balance = balance + 1")

	next := s.takeOver(first)
	tx, balance := s.begin(pgx.TxOptions{}), 0
	if err := tx.QueryRow(t.Context(), "SELECT balance FROM account").Scan(&balance); err != nil {
		t.Fatal(err)
	}
	raised := make(chan error, 1)
	go func() { _, err := tx.Exec(t.Context(), raise, next.Fence()); raised <- err }()
	s.awaitBlocked(1)
	s.commit(open)
	if err := <-raised; err != nil {
		t.Fatal(err)
	}
	s.exec(tx, "UPDATE account SET balance = $1", balance+1)
	s.commit(tx)
	if balance := s.do("SELECT balance FROM account"); balance != "1" {
		t.Errorf("the balance is %s; want that 1 of 2 updates is lost, otherwise the rule is not needed", balance)
	}
}

// A rollback to a savepoint takes the fence back, and the write commits after that of a later
// lease.
func TestUnfenced_savepointLetsStaleWriteCommit(t *testing.T) {
	s := newScene(t)
	paused := s.acquire("k")
	tx := s.begin(pgx.TxOptions{})
	failed := errors.New("a step that may fail")
	err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
		s.exec(tx, raise, paused.Fence())
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}

	next := s.takeOver(paused)
	later := s.fence(next)
	s.exec(later, "UPDATE account SET token = $1", next.Fence())
	s.commit(later)

	s.exec(tx, "UPDATE account SET token = $1", paused.Fence())
	s.commit(tx)
	if token := s.do("SELECT token FROM account"); token != fmt.Sprint(paused.Fence()) {
		t.Errorf("the last write has token %s; want the stale %d, otherwise the rule is not needed", token, paused.Fence())
	}
}

// A check that changes no row ends no transaction.
func TestUnfenced_noRowsLetStaleWriteCommit(t *testing.T) {
	s := newScene(t)
	paused := s.acquire("k")
	next := s.takeOver(paused)
	s.commit(s.fence(next))

	tx := s.begin(pgx.TxOptions{})
	s.exec(tx, raise, paused.Fence()) // 0 rows, no error
	s.exec(tx, "UPDATE account SET token = $1", paused.Fence())
	s.commit(tx)
	if token := s.do("SELECT token FROM account"); token != fmt.Sprint(paused.Fence()) {
		t.Errorf("the last write has token %s; want the stale %d, otherwise the rule is not needed", token, paused.Fence())
	}
}

// A caller that ignores the refusal inside of a savepoint, and rolls back to it, has no fence.
func TestUnfenced_ignoredErrorInSavepoint(t *testing.T) {
	s := newScene(t)
	paused := s.acquire("k")
	s.commit(s.fence(s.takeOver(paused)))
	tx := s.begin(pgx.TxOptions{})
	err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return pglock.Fence(t.Context(), tx, paused) })
	if err == nil {
		t.Fatal("the stale fence was not refused")
	}
	s.exec(tx, "UPDATE account SET token = $1", paused.Fence())
	s.commit(tx)
	if token := s.do("SELECT token FROM account"); token != fmt.Sprint(paused.Fence()) {
		t.Errorf("the last write has token %s; want the stale %d, otherwise the limit is gone", token, paused.Fence())
	}
}
