package campaign

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// nothingLeft checks, for up to limit, that a Redis whose Lockers are closed has no held lock and no
// queue, and that its other keys expire. It returns how many locks have a record.
func nothingLeft(t testing.TB, server *servers.Redis, limit time.Duration) (records int) {
	var left []string
	if !servers.Within(limit, func() bool { records, left = leftovers(t, server); return len(left) == 0 }) {
		t.Errorf("there are left: %s", strings.Join(left[:min(len(left), 20)], ", "))
	}
	if records == 0 {
		t.Error("no lock has a record: is this the server?")
	}
	return records
}

// stays are the kinds of keys that a lock or session may leave, each for a time.
var stays = map[string]bool{"tombstones": true, "log": true, "mark": true, "ids": true}

func leftovers(t testing.TB, server *servers.Redis) (records int, left []string) {
	// One script, because this asks about a thousand keys.
	listing, err := server.Do("EVAL",
		`local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local state = string.find(key, '}:lock', 1, true) and redis.call('GETRANGE', key, 2, 2) or ''
  all[#all+1] = key .. state .. ' ' .. redis.call('PTTL', key)
end
return all`, "0")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(listing) {
		key, expires, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, kind, _ := strings.Cut(key, "}:")
		kind, _, _ = strings.Cut(kind, ":")
		ms, _ := strconv.Atoi(expires)
		record := kind == "lockr" || kind == "lockR" // of a released lock
		if !record && strings.HasPrefix(kind, "lock") && ms > 0 {
			record = time.Duration(ms)*time.Millisecond <= driver.FenceKeep // of one that has expired
		}
		if record {
			records++
		}
		if strings.HasPrefix(key, leakedKey) || expires == "-2" { // it has just expired
			continue
		}
		// A session without IdleTTL has no TTL.
		endless := strings.Contains(key, "{talk-") && !record && kind != "tombstones"
		if !stays[kind] && !record || expires == "-1" && !endless {
			left = append(left, fmt.Sprintf("%s, for %s ms", key, expires))
		}
	}
	return records, left
}
