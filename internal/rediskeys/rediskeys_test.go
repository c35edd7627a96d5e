package rediskeys_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/rediskeys"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }

func open(t *testing.T) (*redis.Client, *redisconn.Transport) {
	t.Helper()
	db := servers.SharedRedis(t)
	client := redis.NewClient(&redis.Options{Addr: db.Addr(), DB: db.DB()})
	transport := redisconn.New(client, nil)
	t.Cleanup(func() {
		transport.Close()
		_ = client.Close()
	})
	return client, transport
}

func TestNames_unknownPlace_isNotSent(t *testing.T) {
	_, transport := open(t)
	names, next, err := rediskeys.Names(t.Context(), transport, "n", "lock", "{", 1)
	if !errors.Is(err, redisconn.ErrNotDone) {
		t.Errorf("%q, %q, %v", names, next, err)
	}
}

// Keys of other programs expire between two pages. SCAN with the same cursor then reads on, to keys that
// come before those of the page before.
func TestNames_othersExpire_noneIsLeftOut(t *testing.T) {
	client, transport := open(t)
	const keys = 2000
	var others []string
	for i := range keys {
		others = append(others, fmt.Sprint(t.Name(), "-", i))
		key := rediskeys.Prefix("n\xff", fmt.Sprint(i, "}%\xff")) + "log"
		if err := client.MSet(t.Context(), key, "", others[i], "").Err(); err != nil {
			t.Fatal(err)
		}
	}
	shown := map[string]int{}
	for after := ""; ; {
		page, next, err := rediskeys.Names(t.Context(), transport, "n\xff", "log", after, 7)
		if err != nil || len(page) > 100 {
			t.Fatalf("%d names, %v, want about 7", len(page), err)
		}
		for _, name := range page {
			shown[name]++
		}
		n := min(len(others), 20)
		if err := client.Del(t.Context(), append(others[:n:n], "")...).Err(); err != nil {
			t.Fatal(err)
		}
		if others, after = others[n:], next; after == "" {
			break
		}
	}
	if len(shown) != keys || shown["7}%\xff"] == 0 {
		t.Errorf("the pages have %d of %d names", len(shown), keys)
	}
}
