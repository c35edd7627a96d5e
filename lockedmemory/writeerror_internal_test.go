package lockedmemory

import (
	"errors"
	"fmt"
	"testing"

	"github.com/belugalock/belugalock/distlock"
)

func TestWriteError(t *testing.T) {
	own := errors.New("of the memory")
	lost, closed, unknown := distlock.ErrLost, distlock.ErrClosed, distlock.ErrOutcomeUnknown
	joined := func(err error) error { return fmt.Errorf("%w: %w", lost, err) }
	for name, c := range map[string]struct {
		byStore            bool
		wrote, lease, done error
		want               error // nil, or what the result matches
		unknown            bool
	}{
		"stored":                    {},
		"failed":                    {wrote: own, done: own, want: own},
		"lost":                      {lease: lost, done: lost, want: lost, unknown: true},
		"closed":                    {lease: closed, done: closed, want: closed, unknown: true},
		"failed and lost":           {wrote: own, lease: lost, done: joined(own), want: own, unknown: true},
		"unavailable and lost":      {wrote: distlock.ErrUnavailable, lease: lost, done: joined(distlock.ErrUnavailable), want: distlock.ErrUnavailable},
		"refused and lost":          {wrote: distlock.ErrRefused, lease: lost, done: joined(distlock.ErrRefused), want: distlock.ErrRefused},
		"the loss of another lease": {wrote: lost, done: lost, want: lost},
		"the loss of both":          {wrote: lost, lease: lost, done: lost, want: lost, unknown: true},
		"stored by a store, lost":   {byStore: true, lease: lost, done: lost},
		"refused by a store, lost":  {byStore: true, wrote: own, lease: lost, done: joined(own), want: own},
	} {
		err := writeError("write", c.byStore, c.wrote, c.lease, c.done)
		if !errors.Is(err, c.want) || errors.Is(err, unknown) != c.unknown {
			t.Errorf("%s: %v", name, err)
		}
	}
}
