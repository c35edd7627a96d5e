package distlock_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestNew_refusesOptionsOutOfRange(t *testing.T) {
	for name, test := range map[string]struct {
		opts distlock.Options
		want string // in the text: what to do
	}{
		"short TTL":          {distlock.Options{TTL: 99 * time.Millisecond}, "at least 100ms"},
		"negative TTL":       {distlock.Options{TTL: -1}, "at least 100ms"},
		"endless TTL":        {distlock.Options{TTL: math.MaxInt64}, "at most 87600h0m0s"},
		"TTL without a unit": {distlock.Options{TTL: 30}, "did you mean 30*time.Second?"},
		"RenewEvery = TTL": {distlock.Options{TTL: time.Second, RenewEvery: time.Second},
			"with a TTL of 1s it must be at most 484ms"},
		"RenewEvery > TTL":     {distlock.Options{RenewEvery: time.Minute}, "at most 14.724s"},
		"tiny RenewEvery":      {distlock.Options{RenewEvery: time.Millisecond}, "at least 10ms"},
		"negative MaxHold":     {distlock.Options{MaxHold: -1}, "not be negative"},
		"brace in Namespace":   {distlock.Options{Namespace: "a{b"}, "another separator"},
		"control in Namespace": {distlock.Options{Namespace: "a\nb"}, "control character"},
		"long Namespace":       {distlock.Options{Namespace: strings.Repeat("n", 129)}, "at most 128"},
		"long Holder":          {distlock.Options{Holder: strings.Repeat("h", 257)}, "at most 256"},
		"Holder not UTF-8":     {distlock.Options{Holder: "\xff"}, "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := memlock.New(&test.opts)
			if l != nil || !errors.Is(err, distlock.ErrInvalidOption) {
				t.Fatalf("New: %v, %v, want ErrInvalidOption", l, err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q does not say %q", err, test.want)
			}
		})
	}
	if _, err := distlock.New(nil, nil); !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("a nil driver: %v", err)
	}
}

// A RenewEvery near the TTL would lose every lease at 2 ms of latency.
func TestRenewEvery_leavesTimeForARetry(t *testing.T) {
	_, err := memlock.New(&distlock.Options{TTL: 30 * time.Second, RenewEvery: 29447 * time.Millisecond})
	if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "at most 14.724s") {
		t.Errorf("RenewEvery 29.447s of a TTL of 30s: %v, want ErrInvalidOption that names the most", err)
	}
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{TTL: 30 * time.Second, RenewEvery: 14724 * time.Millisecond}))
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.N%2 == 0 { // every second renewal
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{HoldAfter: in(100 * time.Millisecond)}
		})
		time.Sleep(10 * time.Minute)
		s.Inject(nil)
		if err := lease.Err(); err != nil {
			t.Errorf("the longest RenewEvery lost the lease: %v", err)
		}
	})
}

func TestNew_defaults(t *testing.T) {
	l, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := fencing.Options(l)
	if o.Namespace != "distlock" || o.TTL != 30*time.Second || o.Wait != 35*time.Second ||
		o.RenewEvery != 10*time.Second ||
		o.MaxHold != 0 ||
		!strings.Contains(o.Holder, ":") || o.Observer == nil || o.Logger == nil || o.LogKeys != distlock.KeyHashed {
		t.Errorf("defaults %+v", o)
	}
	if fencing.Backend(l) != "memory" {
		t.Errorf("backend %q", fencing.Backend(l))
	}
}
