package redislock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

func TestParseURL_badURL_isInvalidOption(t *testing.T) {
	_, err := redislock.ParseURL("redis://u:12/s3cret@h")
	if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "lock URL: it cannot be parsed") {
		t.Errorf("%v, want ErrInvalidOption of a lock URL", err)
	}
}
