package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock/driver"
)

// rowLocks are the names whose rows were locked by another transaction for too long. ⚑ Their calls run
// one at a time, so they never occupy all connections for calls.
type rowLocks struct {
	turn chan struct{}

	mu    sync.Mutex
	names map[driver.Name]bool
}

// maxNames bounds the names. A name that is not among them may delay another call for once.
const maxNames = 1024

func newRowLocks() *rowLocks {
	return &rowLocks{turn: make(chan struct{}, 1), names: make(map[driver.Name]bool)}
}

// do runs a call of a name, at its turn.
func (l *rowLocks) do(ctx context.Context, name driver.Name, call func() error) error {
	l.mu.Lock()
	locked := l.names[name]
	l.mu.Unlock()
	if locked {
		select {
		case l.turn <- struct{}{}:
			defer func() { <-l.turn }()
		case <-ctx.Done():
			return fmt.Errorf("pglock: %w: %w", driver.ErrNotDone, ctx.Err())
		}
	}
	err := call()
	var server *pgconn.PgError
	timedOut := errors.As(err, &server) && server.Code == "55P03"
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.names, name); timedOut && len(l.names) < maxNames {
		l.names[name] = true
	}
	return err
}
