// Package scratch borrows a server for the histories and the locks of a run, and leaves nothing there.
package scratch

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory"
)

// keep is when a history expires that nothing could remove, because the program was killed.
const keep = time.Hour

// Server has what a run writes.
type Server interface {
	// Prepare makes the server ready, once for all instances. It fails if the server does not answer.
	Prepare(ctx context.Context) error
	// Log returns the history of a conversation in the run without the lock.
	Log(session int) history.Log
	// Open returns the locks and the histories of the run with the lock. The caller closes the Locker.
	Open(ctx context.Context, key lockedmemory.KeyFunc, opts distlock.Options) (*distlock.Locker, *history.Store, error)
	// Remove removes what Prepare and the run have written.
	Remove(ctx context.Context) error
	Close()
}

// New returns the server at a lock URL. It does not connect yet. The names of all that the run writes
// begin with run.
func New(url, run string) (Server, error) {
	scheme, _, _ := strings.Cut(url, "://")
	if slices.Contains(strings.Fields(pglock.Schemes), scheme+"://") {
		return newPostgres(url, run)
	}
	return newRedis(url, run)
}
