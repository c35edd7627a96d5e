package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

func TestRetention_outOfRange_refused(t *testing.T) {
	for name, c := range map[string]struct {
		keep driver.Retention
		ok   bool
	}{
		"none":                     {driver.Retention{}, true},
		"the least":                {driver.Retention{IdleTTL: time.Second, MaxExchanges: 1, MaxAge: time.Second}, true},
		"the most":                 {driver.Retention{MaxExchanges: 1_000_000_000}, true},
		"negative MaxExchanges":    {driver.Retention{MaxExchanges: -1}, false},
		"MaxExchanges too large":   {driver.Retention{MaxExchanges: 1_000_000_001}, false},
		"MaxAge too short":         {driver.Retention{MaxAge: time.Second - time.Millisecond}, false},
		"IdleTTL too short":        {driver.Retention{IdleTTL: time.Millisecond}, false},
		"RememberIDs too short":    {driver.Retention{RememberIDs: -time.Second}, false},
		"MaxAge in microseconds":   {driver.Retention{MaxAge: time.Second + time.Microsecond}, false},
		"IdleTTL too long":         {driver.Retention{IdleTTL: 20 * 365 * 24 * time.Hour}, false},
		"a namespace with a brace": {driver.Retention{Namespace: "a{b"}, false},
	} {
		if _, err := c.keep.WithDefaults(); errors.Is(err, distlock.ErrInvalidOption) == c.ok || (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
