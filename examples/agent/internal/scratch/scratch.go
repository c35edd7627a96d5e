// Package scratch borrows servers for the locks and the histories of a run, and leaves nothing there.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Servers have what a run writes: its locks and its histories, often on one server.
type Servers struct{ locks, histories *server }

// New returns the servers at two lock URLs, and one server if they are the same. It does not connect
// yet. The names of all that the run writes begin with run. An error names the flag of the URL.
func New(locks, histories, run string) (*Servers, error) {
	if IsQuorum(histories) {
		return nil, errors.New("-store: a quorum keeps locks alone: write the URL of one Redis or PostgreSQL")
	}
	kept, err := open(histories, run)
	if err != nil {
		return nil, fmt.Errorf("-store: %w", err)
	}
	if locks == histories {
		return &Servers{kept, kept}, nil
	}
	held, err := open(locks, run)
	if err != nil {
		kept.close()
		return nil, fmt.Errorf("-lock: %w", err)
	}
	return &Servers{held, kept}, nil
}

// IsQuorum reports whether url names the nodes of a quorum, which keeps locks alone.
func IsQuorum(url string) bool { return is(url, redlock.Schemes) }

func is(url, schemes string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return slices.Contains(strings.Fields(schemes), scheme+"://")
}

// all returns each server once.
func (s *Servers) all() []*server { return slices.Compact([]*server{s.locks, s.histories}) }

// Prepare makes the servers ready, once for all instances. It fails if a server does not answer.
func (s *Servers) Prepare(ctx context.Context) error {
	for _, server := range s.all() {
		if err := server.prepare(ctx); err != nil {
			_ = s.Remove(context.WithoutCancel(ctx))
			return err
		}
	}
	return nil
}

// Log returns the list of messages with a name.
func (s *Servers) Log(name string) history.Log { return list{s.histories, name} }

// Store returns the session store of the run with whole turns.
func (s *Servers) Store(key lockedmemory.KeyFunc) (*history.Store, error) {
	return s.histories.store(key)
}

// Locker returns the locks of the run. The caller closes the Locker.
func (s *Servers) Locker(ctx context.Context, opts distlock.Options) (*distlock.Locker, error) {
	return s.locks.locker(ctx, opts)
}

// Remove removes what Prepare and the run have written.
func (s *Servers) Remove(ctx context.Context) (err error) {
	for _, server := range s.all() {
		err = errors.Join(err, server.remove(ctx))
	}
	return err
}

// Close closes the connections to the servers.
func (s *Servers) Close() {
	for _, server := range s.all() {
		server.close()
	}
}
