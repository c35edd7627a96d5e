package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// The error of a refused Save says only that nothing was written, even if the lease ends during the
// Save.
func TestSave_S2_refused_nothingWritten(t *testing.T) {
	for name, c := range map[string]struct {
		id, output string
		conflict   bool // refused without a check of the token; otherwise stale
	}{"stale": {"", "a", false}, "stale, with ID": {"new", "a", false}, "used ID": {"id", "other", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noticed := new(noticing)
			s, theirs := newRig(t, &distlock.Options{Observer: noticed}), newRig(t)
			must(t, s.memory.SaveOnce(t.Context(), "id", "q", "a"))
			ours := s.around(t, &overtaken{s.store, func(ctx context.Context) {
				noticed.by = ctx
				s.expire(ctx)
				if !c.conflict {
					theirs.turn(t, func(ctx context.Context) { must(t, theirs.opens(ctx)) })
				}
			}})
			err := ours.Turn(t.Context(), func(ctx context.Context) error {
				save := func() error { return ours.Save(ctx, "q", c.output) }
				if c.id != "" {
					save = func() error { return ours.SaveOnce(ctx, c.id, "q", c.output) }
				}
				err, stale := save(), new(sessionstore.StaleError)
				if !errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrOutcomeUnknown) ||
					errors.Is(err, sessionstore.ErrIDConflict) != c.conflict || errors.As(err, &stale) == c.conflict {
					t.Errorf("Save: %v", err)
				}
				return nil
			})
			if !errors.Is(err, distlock.ErrLost) {
				t.Errorf("Turn: %v", err)
			}
		})
	}
}

// overtaken calls before each Save and SaveOnce of the store, and returns after the loss of the lease.
type overtaken struct {
	*sessionstore.Store[string, string]
	before func(ctx context.Context)
}

func (o *overtaken) Save(ctx context.Context, input, output string) error {
	return o.then(ctx, func() error { return o.Store.Save(ctx, input, output) })
}

func (o *overtaken) SaveOnce(ctx context.Context, id string, messages ...string) error {
	return o.then(ctx, func() error { return o.Store.SaveOnce(ctx, id, messages...) })
}

func (o *overtaken) then(ctx context.Context, save func() error) error {
	o.before(ctx)
	err := save()
	if lease, ok := lockedmemory.Lease(ctx); ok {
		_ = lease.Extend(ctx, time.Minute)
	}
	<-ctx.Done()
	return err
}

// noticing delays the end of a RaiseToken until the caller has noticed the loss.
type noticing struct{ by context.Context }

func (n *noticing) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (n *noticing) End(_ context.Context, op *distlock.Operation) {
	if op.Name == distlock.OpRaiseToken {
		<-n.by.Done()
	}
}
