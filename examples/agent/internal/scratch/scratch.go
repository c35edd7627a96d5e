// Package scratch borrows servers for the locks and the histories of a run, and leaves nothing there.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory"
)

// keep is when a history expires that nothing could remove, because the program was killed.
const keep = time.Hour

// Servers have what a run writes: its locks and its histories, often on one server.
type Servers struct {
	locks     server
	histories store
}

// server is where a run has its locks.
type server interface {
	Prepare(ctx context.Context) error
	Locker(ctx context.Context, opts distlock.Options) (*distlock.Locker, error)
	Remove(ctx context.Context) error
	Close()
}

// store is a server that keeps histories as well.
type store interface {
	server
	Log(name string) history.Log
	Store(key lockedmemory.KeyFunc) (*history.Store, error)
}

// New returns the servers at two lock URLs, and one server if they are the same. It does not connect
// yet. The names of all that the run writes begin with run. An error names the flag of the URL.
func New(locks, histories, run string) (*Servers, error) {
	kept, err := open(histories, run)
	if err != nil {
		return nil, fmt.Errorf("-store: %w", err)
	}
	if locks == histories {
		return &Servers{kept, kept}, nil
	}
	var held server
	if IsQuorum(locks) {
		held, err = newQuorum(locks, run)
	} else {
		held, err = open(locks, run)
	}
	if err != nil {
		kept.Close()
		return nil, fmt.Errorf("-lock: %w", err)
	}
	return &Servers{held, kept}, nil
}

func open(url, run string) (store, error) {
	switch {
	case is(url, pglock.Schemes):
		return newPostgres(url, run)
	case IsQuorum(url):
		return nil, errors.New("a quorum keeps locks alone: write the URL of one Redis or PostgreSQL")
	}
	return newRedis(url, run)
}

// IsQuorum reports whether url names the nodes of a quorum, which keeps locks alone.
func IsQuorum(url string) bool { return is(url, redlock.Schemes) }

func is(url, schemes string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return slices.Contains(strings.Fields(schemes), scheme+"://")
}

// all returns each server once.
func (s *Servers) all() []server {
	if s.locks == server(s.histories) {
		return []server{s.locks}
	}
	return []server{s.locks, s.histories}
}

// Prepare makes the servers ready, once for all instances. It fails if a server does not answer.
func (s *Servers) Prepare(ctx context.Context) error {
	for i, server := range s.all() {
		if err := server.Prepare(ctx); err != nil {
			for _, ready := range s.all()[:i] {
				err = errors.Join(err, ready.Remove(context.WithoutCancel(ctx)))
			}
			return err
		}
	}
	return nil
}

// Log returns the list of messages with a name.
func (s *Servers) Log(name string) history.Log { return s.histories.Log(name) }

// Store returns the session store of the run with whole turns.
func (s *Servers) Store(key lockedmemory.KeyFunc) (*history.Store, error) {
	return s.histories.Store(key)
}

// Locker returns the locks of the run. The caller closes the Locker.
func (s *Servers) Locker(ctx context.Context, opts distlock.Options) (*distlock.Locker, error) {
	return s.locks.Locker(ctx, opts)
}

// Remove removes what Prepare and the run have written.
func (s *Servers) Remove(ctx context.Context) (err error) {
	for _, server := range s.all() {
		err = errors.Join(err, server.Remove(ctx))
	}
	return err
}

// Close closes the connections to the servers.
func (s *Servers) Close() {
	for _, server := range s.all() {
		server.Close()
	}
}
