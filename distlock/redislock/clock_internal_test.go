package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// clocked is a server whose clock shows what the test sets.
type clocked struct {
	*testing.T
	client redis.UniversalClient
	keys   []string
}

func newClocked(t *testing.T) *clocked {
	db := servers.SharedRedis(t)
	client := redis.NewClient(&redis.Options{Addr: db.Addr(), DB: db.DB()})
	t.Cleanup(func() { _ = client.Close() })
	return &clocked{t, client, keysOf(driver.Name{Namespace: "n", Key: "k"}).all()}
}

// at runs a script at a moment of the clock, in µs.
func (c *clocked) at(now int64, script *redisconn.Script, keys []string, args ...any) []any {
	c.Helper()
	words := script.Command(context.Background(), keys, args...).Whole().Args()
	words[1] = strings.ReplaceAll(fmt.Sprint(words[1]), "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", now/1e6, now%1e6))
	reply, err := c.client.Do(context.Background(), words...).Result()
	if err != nil {
		c.Fatal(err)
	}
	return parts(reply)
}

// parts lists the parts of a reply. A grant, which is one text, becomes "granted" and three numbers.
func parts(reply any) []any {
	switch reply := reply.(type) {
	case []any:
		return reply
	case string:
		if grant, err := parseGrant(reply); err == nil {
			return []any{"granted", grant.Fence, grant.FenceEnd, int64(grant.Waiters)}
		}
	}
	return []any{reply}
}

func (c *clocked) acquire(now int64, owner string) []any {
	c.Helper()
	return c.at(now, acquireScript, c.keys, strings.Repeat(owner, ownerLen), 30_000, "{}")
}

func (c *clocked) release(owner string) {
	c.Helper()
	if err := releaseScript.Script.Run(context.Background(), c.client, c.keys, strings.Repeat(owner, ownerLen)).Err(); err != nil {
		c.Fatal(err)
	}
}

// The last token of a block may be another holder's.
func TestAcquire_S2_clockAtLastToken_rises(t *testing.T) {
	c := newClocked(t)
	now := time.Now().UnixMicro()
	for i, owner := range []string{"a", "b"} {
		reply := c.acquire(now, owner)
		if reply[0] != "granted" || i > 0 && reply[1] != now+1 {
			t.Fatalf("at %d, where the last block ends: %v", now, reply)
		}
		now = reply[2].(int64)
		c.release(owner)
	}
}

// A number of the record has a fixed width, also where the clock starts at 1970.
func TestAcquire_S2_clockBefore2001_tokenHasItsWidth(t *testing.T) {
	c := newClocked(t)
	const now = 1_000_000
	if reply := c.acquire(now, "a"); reply[0] != "granted" || reply[1] != int64(now) {
		t.Errorf("%v", reply)
	}
	if r, err := parseRecord(c.client.Get(t.Context(), c.keys[0]).Val()); err != nil || r.token != now {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

// A clock that steps back by decades makes no record too long.
func TestAcquire_S2_clockStepsBackDecades_rises(t *testing.T) {
	c := newClocked(t)
	first := c.acquire(time.Now().UnixMicro(), "a")
	c.release("a")
	next := c.acquire(1_000_000, "b")
	r, err := parseRecord(c.client.Get(t.Context(), c.keys[0]).Val())
	if err != nil || next[0] != "granted" || r.token != first[2].(int64)+1 || r.keep < 3*365*24*time.Hour {
		t.Errorf("after %v: %v, and the record is %+v, %v", first, next, r, err)
	}
}
