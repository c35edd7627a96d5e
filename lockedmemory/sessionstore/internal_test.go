package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// The outcome of a call stays unknown if a later copy of it is refused, turned away, or not sent.
func TestRetry_O_earlierCopy_unknownOutcome(t *testing.T) {
	temporary := fmt.Errorf("%w: loading", driver.ErrTemporary)
	silence := fmt.Errorf("%w: %w", driver.ErrReplayed, temporary)
	notSent := fmt.Errorf("%w: %w", driver.ErrNotDone, context.Canceled)
	for name, c := range map[string]struct {
		errs   []error
		effect bool
	}{
		"refused after silence":              {[]error{silence, driver.ErrRefused}, true},
		"not sent after silence":             {[]error{silence, notSent}, true},
		"not sent after silence, and a wait": {[]error{silence, temporary, notSent}, true},
		"not sent":                           {[]error{notSent}, false},
		"turned away, then refused":          {[]error{temporary, driver.ErrRefused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errs := c.errs
				_, err := repeat(t.Context(), time.Minute, func() (v storedriver.Verdict, err error) {
					err, errs = errs[0], errs[1:]
					return v, err
				})
				if len(errs) > 0 || driver.MayHaveEffect(err) != c.effect || !errors.Is(err, c.errs[len(c.errs)-1]) {
					t.Errorf("after %d calls: %v", len(c.errs)-len(errs), err)
				}
			})
		})
	}
}

// A lease that has ended has shown nothing: a late Load shows its token again, and may be refused.
func TestLeases_S2_endedLease_nothingShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, err := memlock.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background())
		lease, err := locker.Acquire(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		store := new(Store[string, string])
		before := stateOf(store, lease)
		if before.accept(lease.Fence(), nil); stateOf(store, lease) != before {
			t.Error("a lease that is held has another state each time")
		}
		if other := stateOf(new(Store[string, string]), lease); other == before || other.places != before.places {
			t.Error("two stores share the state of a lease, or do not share the places")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := stateOf(store, lease); after == before || after.acceptedFence != 0 {
			t.Error("the lease has ended, and its token counts as shown")
		}
	})
}
