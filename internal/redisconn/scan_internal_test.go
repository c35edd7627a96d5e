package redisconn

import (
	"errors"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

func TestKeys_unknownPlace_isNotSent(t *testing.T) {
	keys, next, err := open(t, onNode(t)).shared.Keys(t.Context(), "{", "n:", "", 1)
	if !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("%q, %q, %v", keys, next, err)
	}
}
