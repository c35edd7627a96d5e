package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// The error of a refused Save says only that nothing was written, even if the lease ends during the
// Save.
func TestSave_S2_refused_nothingWritten(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, c := range map[string]struct {
		id, output string
		as         error // nil: a StaleError
	}{
		"stale":          {"", "a", nil},
		"stale, with ID": {"new", "a", nil},
		"used ID":        {"id", "other", sessionstore.ErrIDConflict},
		"too large":      {"", long, sessionstore.ErrTooLarge},
		"not encodable":  {"", "bad", sessionstore.ErrCodec},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noticed := new(noticing)
			s, theirs := newRig(t, redis.Options{}, &distlock.Options{Observer: noticed}, nil), newRig(t, redis.Options{}, nil, nil)
			ctx := t.Context()
			must(t, s.memory.SaveOnce(ctx, "id", "q", "a"))
			store, err := redisstore.New(s.client, lockedmemory.FixedKey(s.key), picky{}, nil, &sessionstore.Options{MaxMessage: 1000})
			must(t, err)
			ours := s.around(t, &overtaken{store, func(ctx context.Context) {
				noticed.by = ctx
				s.expire(ctx)
				if c.as != nil { // refused without a check of the token
					return
				}
				if err := theirs.memory.Turn(context.WithoutCancel(ctx), theirs.opens); err != nil {
					t.Error(err)
				}
			}})
			err = ours.Turn(ctx, func(ctx context.Context) error {
				save := func() error { return ours.Save(ctx, "q", c.output) }
				if c.id != "" {
					save = func() error { return ours.SaveOnce(ctx, c.id, "q", c.output) }
				}
				err := save()
				stale := new(sessionstore.StaleError)
				if !errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrOutcomeUnknown) || c.as != nil && !errors.Is(err, c.as) ||
					c.as == nil && !errors.As(err, &stale) {
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

// picky does not encode everything.
type picky struct{ sessionstore.JSON[string] }

func (p picky) Encode(text string) ([]byte, error) {
	if text == "bad" {
		return nil, errors.New("no words for that")
	}
	return p.JSON.Encode(text)
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
