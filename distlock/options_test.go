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
		set  option
		want string // in the text: what to do
	}{
		"short TTL":            {withTTL(99 * time.Millisecond), "at least 100ms"},
		"negative TTL":         {withTTL(-1), "at least 100ms"},
		"endless TTL":          {withTTL(math.MaxInt64), "at most 87600h0m0s"},
		"TTL without a unit":   {withTTL(30), "did you mean 30*time.Second?"},
		"RenewEvery = TTL":     {renewEvery(ttl), "with a TTL of 3s it must be at most 1.454s"},
		"tiny RenewEvery":      {renewEvery(time.Millisecond), "at least 10ms"},
		"negative MaxHold":     {withMaxHold(-1), "not be negative"},
		"brace in Namespace":   {withNamespace("a{b"), "another separator"},
		"control in Namespace": {withNamespace("a\nb"), "control character"},
		"long Namespace":       {withNamespace(strings.Repeat("n", 129)), "at most 128"},
		"long Holder":          {withHolder(strings.Repeat("h", 257)), "at most 256"},
		"Holder not UTF-8":     {withHolder("\xff"), "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := memlock.New(options(test.set))
			if l != nil || !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want ErrInvalidOption that says %q", err, test.want)
			}
		})
	}
	wantErr(t, second(distlock.New(nil, nil)), distlock.ErrInvalidOption)
}

// A RenewEvery near the TTL would lose every lease at 2 ms of latency.
func TestRenewal_N_longestPeriod_leavesTimeForARetry(t *testing.T) {
	const most = 14724 * time.Millisecond
	_, err := memlock.New(options(withTTL(30*time.Second), renewEvery(most+time.Millisecond)))
	if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "at most 14.724s") {
		t.Errorf("a RenewEvery above the most: %v, want ErrInvalidOption that names the most", err)
	}
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, withTTL(30*time.Second), renewEvery(most)))
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.N%2 == 0 { // every second renewal
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{HoldAfter: in(100 * time.Millisecond)}
		})
		time.Sleep(10 * time.Minute)
		s.Inject(nil)
		wantErr(t, lease.Err(), nil)
	})
}

func TestNew_defaults(t *testing.T) {
	l, err := memlock.New(nil)
	must(t, err)
	o := fencing.Options(l)
	if o.Namespace != "distlock" || o.TTL != 30*time.Second || o.Wait != 35*time.Second ||
		o.RenewEvery != 10*time.Second || o.MaxHold != 0 || !strings.Contains(o.Holder, ":") ||
		o.Observer == nil || o.Logger == nil || o.LogKeys != distlock.KeyHashed || fencing.Backend(l) != "memory" {
		t.Errorf("defaults %+v of %s", o, fencing.Backend(l))
	}
}
