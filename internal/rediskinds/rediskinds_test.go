package rediskinds

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// reply is an error that a server has answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestExplain_kinds(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	full := reply("OOM command not allowed when used memory > 'maxmemory'.")
	for _, c := range []struct {
		err   error
		kinds []error
	}{
		{io.EOF, nil},
		{reply("FOREIGN of another program"), []error{driver.ErrForeign}},
		{reply("FLOOR too high"), []error{driver.ErrFloor}},
		{reply("FENCE past 2^53"), []error{driver.ErrRefused}},
		{reply("NOAUTH Authentication required."), []error{driver.ErrRefused, driver.ErrRights}},
		{reply("LOADING"), []error{driver.ErrTemporary}},
		{full, []error{driver.ErrRefused, driver.ErrNotDone}},
		{redisconn.WithEarlierCopy(true, full), []error{driver.ErrRefused, driver.ErrNotDone, driver.ErrReplayed}},
	} {
		got := Explain(client, "redislock", c.err)
		if !errors.Is(got, c.err) || got.Error() != redisconn.Explain(client, "redislock", c.err).Error() {
			t.Errorf("%v: %v", c.err, got)
		}
		for _, kind := range kinds {
			want := false
			for _, k := range c.kinds {
				want = want || k == kind.kind
			}
			if errors.Is(got, kind.kind) != want {
				t.Errorf("%v: is it %v? %t", c.err, kind.kind, !want)
			}
		}
	}
}
