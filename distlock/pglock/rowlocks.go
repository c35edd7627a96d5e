package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// rowLimit is how long a call waits for a row that another transaction locks.
	rowLimit = 20 * time.Millisecond
	// laneLimit is how long a call waits for such a row when its turn has come.
	laneLimit = 2 * time.Second
)

// rowLocks are the names whose rows were locked by another transaction for too long. ⚑ Their calls run
// one at a time, so they never occupy all connections for calls.
type rowLocks struct {
	turn chan struct{}

	mu    sync.Mutex
	names map[driver.Name]bool
}

// maxNames bounds the names. A name that is not among them delays another call for rowLimit.
const maxNames = 1024

func newRowLocks() *rowLocks {
	return &rowLocks{turn: make(chan struct{}, 1), names: make(map[driver.Name]bool)}
}

// do makes a call of a name. The call waits for its row for the given number of ms. After a timeout, do
// makes the call again at its turn: the first one has had no effect.
func (l *rowLocks) do(ctx context.Context, name driver.Name, call func(wait int64) error) error {
	l.mu.Lock()
	locked := l.names[name]
	l.mu.Unlock()
	if !locked {
		if err := call(rowLimit.Milliseconds()); !timedOut(err) {
			return err
		}
		l.note(name, true)
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return fmt.Errorf("pglock: %w: another transaction locks the row of the name: %w", driver.ErrNotDone, ctx.Err())
	}
	err := call(laneLimit.Milliseconds())
	l.note(name, timedOut(err))
	return err
}

func (l *rowLocks) note(name driver.Name, locked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.names, name); locked && len(l.names) < maxNames {
		l.names[name] = true
	}
}

func timedOut(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "55P03"
}
