package lockedmemory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// late is a memory whose Save returns an error when its context has ended.
type late struct {
	history
	err error
}

func (l *late) Save(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return l.err
}

// fencedLate is a session store, so each error names the outcome of the write.
type fencedLate struct {
	*sessionstore.Store[string, int] // its other methods are not called
	late                             late
}

func (*fencedLate) AcceptsLocker(*distlock.Locker) error { return nil }

func (l *fencedLate) Save(ctx context.Context, input, output string) error {
	return l.late.Save(ctx, input, output)
}

// A write that outlasts its lease has an unknown outcome, unless its own error says more. Exactly
// one of the three types says so.
func TestSave_N_lostLease_outcome(t *testing.T) {
	definite := errors.New("too large")
	for name, c := range map[string]struct {
		wrote          error
		others, fenced error // in an unfenced memory, in a fenced one
	}{
		"nothing":             {nil, distlock.ErrOutcomeUnknown, nil},
		"an error of its own": {definite, distlock.ErrOutcomeUnknown, nil},
		"the context's error": {context.Canceled, distlock.ErrOutcomeUnknown, nil},
		"unknown": {fmt.Errorf("store: %w", distlock.ErrOutcomeUnknown),
			distlock.ErrOutcomeUnknown, distlock.ErrOutcomeUnknown},
		"an outage": {fmt.Errorf("store: %w", distlock.ErrUnavailable),
			distlock.ErrUnavailable, distlock.ErrUnavailable},
		"a refusal":            {fmt.Errorf("store: %w", distlock.ErrRefused), distlock.ErrRefused, distlock.ErrRefused},
		"another loss":         {distlock.ErrLost, distlock.ErrOutcomeUnknown, nil},
		"the Locker is closed": {nil, distlock.ErrOutcomeUnknown, nil},
	} {
		for inner, want := range map[lockedmemory.Memory[string, int]]error{
			&late{err: c.wrote}:                   c.others,
			&fencedLate{late: late{err: c.wrote}}: c.fenced,
		} {
			t.Run(fmt.Sprintf("%s/%T", name, inner), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSetup(t, distlock.Options{TTL: time.Second}, nil)
					memory, err := lockedmemory.New(inner, s.locker, lockedmemory.FixedKey(session), nil)
					must(t, err)
					end, loss := func() { down(s.faults) }, distlock.ErrLost
					if name == "the Locker is closed" {
						end, loss = func() { _ = s.locker.Close(context.Background()) }, distlock.ErrClosed
					}
					time.AfterFunc(100*time.Millisecond, end)
					err = memory.Save(t.Context(), "q", "a")
					if _, fenced := inner.(*fencedLate); fenced && c.wrote == nil {
						must(t, err) // it was stored
						return
					}
					if !errors.Is(err, loss) || c.wrote != nil && !errors.Is(err, c.wrote) {
						t.Errorf("Save: %v", err)
					}
					for _, each := range []error{distlock.ErrOutcomeUnknown, distlock.ErrUnavailable, distlock.ErrRefused} {
						if errors.Is(err, each) != (each == want) {
							t.Errorf("Save: %v; want %v", err, want)
						}
					}
				})
			})
		}
	}
}

// An inner memory may have a lease of its own, or a Locker that is closed: what such an error says
// stays.
func TestSave_N_heldLease_errorOfTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		for _, own := range []error{distlock.ErrLost, distlock.ErrClosed} {
			s.inner.fail = own
			if err := s.a.Save(t.Context(), "q", "a"); err != own {
				t.Errorf("Save: %v, want %v", err, own)
			}
		}
	})
}
