package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
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
				_, err := retry(t.Context(), time.Minute, func() (v storedriver.Verdict, err error) {
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
