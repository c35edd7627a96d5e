package redisconn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestKeys_unknownPlace_isNotSent(t *testing.T) {
	keys, next, err := open(t, onNode(t)).shared.Keys(t.Context(), "{", "n:", "", 1)
	if !errors.Is(err, ErrNotDone) {
		t.Errorf("%q, %q, %v", keys, next, err)
	}
}

// Keys of other programs expire between two pages. SCAN with the same cursor then reads on, to keys that
// come before those of the page before.
func TestKeys_othersExpire_noneIsLeftOut(t *testing.T) {
	options := onNode(t)
	l := open(t, options)
	client := redis.NewUniversalClient(&options)
	defer client.Close()
	const keys = 2000
	prefix := t.Name() + "\xff:"
	var others []string
	for i := range keys {
		others = append(others, fmt.Sprint(t.Name(), "-", i))
		if err := client.MSet(t.Context(), fmt.Sprint(prefix, i), "", others[i], "").Err(); err != nil {
			t.Fatal(err)
		}
	}
	shown := map[string]int{}
	for after := ""; ; {
		page, next, err := l.shared.Keys(t.Context(), after, prefix, "", 7)
		if err != nil || len(page) > 100 {
			t.Fatalf("%d keys, %v, want about 7", len(page), err)
		}
		for _, key := range page {
			shown[key]++
		}
		n := min(len(others), 20)
		if err := client.Del(t.Context(), append(others[:n:n], "")...).Err(); err != nil {
			t.Fatal(err)
		}
		if others, after = others[n:], next; after == "" {
			break
		}
	}
	if len(shown) != keys {
		t.Errorf("the pages have %d of %d keys", len(shown), keys)
	}
}
