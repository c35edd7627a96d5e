package storedriver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func TestRetention_outOfRange_refused(t *testing.T) {
	for name, c := range map[string]struct {
		keep storedriver.Retention
		ok   bool
	}{
		"none":                     {storedriver.Retention{}, true},
		"the least":                {storedriver.Retention{IdleTTL: time.Second, MaxExchanges: 1, MaxAge: time.Second}, true},
		"the most":                 {storedriver.Retention{MaxExchanges: 1_000_000_000}, true},
		"negative MaxExchanges":    {storedriver.Retention{MaxExchanges: -1}, false},
		"MaxExchanges too large":   {storedriver.Retention{MaxExchanges: 1_000_000_001}, false},
		"MaxAge too short":         {storedriver.Retention{MaxAge: time.Second - time.Millisecond}, false},
		"IdleTTL too short":        {storedriver.Retention{IdleTTL: time.Millisecond}, false},
		"RememberIDs too short":    {storedriver.Retention{RememberIDs: -time.Second}, false},
		"MaxAge in microseconds":   {storedriver.Retention{MaxAge: time.Second + time.Microsecond}, false},
		"IdleTTL too long":         {storedriver.Retention{IdleTTL: 20 * 365 * 24 * time.Hour}, false},
		"a namespace with a brace": {storedriver.Retention{Namespace: "a{b"}, false},
	} {
		if _, err := c.keep.WithDefaults(); errors.Is(err, distlock.ErrInvalidOption) == c.ok || (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
