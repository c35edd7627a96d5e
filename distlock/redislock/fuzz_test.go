package redislock

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belugalock/belugalock/distlock/driver"
)

var hostileNames = []string{
	"k", "a:b", "}", "}}", "{", "{}", "}{", "a}b", "a{b}c", "}:lock", "%7D", "%", "%25", "a}:lock", "lock", "queue", "waiters", "tombstones", ":", "日本", " ",
	strings.Repeat("}", 1024),
}

// Two names share all of their keys or none. The keys of one name share a slot.
func FuzzKeys(f *testing.F) {
	for i, name := range hostileNames {
		f.Add("app", name, "app", hostileNames[(i+1)%len(hostileNames)])
		f.Add(name, "k", "app:", name)
	}
	f.Fuzz(func(t *testing.T, namespace1, key1, namespace2, key2 string) {
		one, two := driver.Name{Namespace: namespace1, Key: key1}, driver.Name{Namespace: namespace2, Key: key2}
		if valid(one) && valid(two) { // a Locker refuses others
			wantApart(t, one, two)
		}
	})
}

// The escaped form of a key is a valid key, too.
func TestKeys_S1_twoNames_twoLocks(t *testing.T) {
	for _, one := range hostileNames {
		for _, two := range hostileNames {
			wantApart(t, driver.Name{Namespace: "app", Key: one}, driver.Name{Namespace: "app", Key: two})
		}
	}
}

func wantApart(t *testing.T, one, two driver.Name) {
	t.Helper()
	for _, name := range []driver.Name{one, two} {
		tag := hashTag(keysOf(name).lock())
		for _, key := range all(name) {
			if tag == "" || hashTag(key) != tag {
				t.Errorf("%q: the hash tag of %q is %q, of its lock %q", name, key, hashTag(key), tag)
			}
		}
	}
	for _, key := range all(one) {
		if slices.Contains(all(two), key) != (one == two) {
			t.Errorf("%q and %q: both have the key %q", one, two, key)
		}
	}
}

func all(name driver.Name) []string {
	return keysOf(name).all()
}

// valid reports whether a Locker accepts a name.
func valid(name driver.Name) bool {
	for _, text := range []string{name.Namespace, name.Key} {
		if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return false
		}
	}
	return !strings.ContainsAny(name.Namespace, "{}")
}

// hashTag returns the part of a key that a Cluster hashes, by the specification of Redis: the text
// between the first "{" and the next "}", or the whole key if that text is missing or empty.
func hashTag(key string) string {
	_, rest, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !open || !closed || tag == "" {
		return key
	}
	return tag
}

// Every reply of a server is parsed or refused, without a panic and without an invalid token.
func FuzzReplies(f *testing.F) {
	for _, value := range []string{
		someRecord, with(3, "r"), with(69, "0000000000000000"), with(85, "9007199254740991"), with(85, "9007199254740992"),
		with(101, "99999999999"), someRecord[:headerLen] + `{"h":1}`, someRecord[:headerLen-1], strings.Repeat("b2h.", 40), "",
	} {
		f.Add("busy", value, int64(86_400_020+5000), int64(3), int64(7), "1795225290", "897391", uint8(7))
		f.Add("full", value, int64(-1), int64(-1), int64(0), "1795225290", "000001", uint8(7))
		f.Add("busy", value, int64(math.MinInt64), int64(0), int64(-1), "-1", "", uint8(5))
	}
	f.Add("", "179522528989739117952252899173917", int64(0), int64(0), int64(0), "", "", uint8(0))
	f.Add("", "179522528991739117952252898973910", int64(0), int64(0), int64(0), "", "", uint8(0))
	f.Add("cancelled", "", int64(0), int64(0), int64(0), "", "", uint8(1))
	f.Fuzz(func(t *testing.T, name, value string, a, b, c int64, seconds, micros string, length uint8) {
		parts := []any{name, value, a, seconds, micros, b, c}
		var reply any = parts[:min(int(length), len(parts))]
		if name == "" {
			reply = value
		}
		got, err := parseAcquire(reply)
		switch {
		case err != nil && got.Outcome == driver.Granted:
			t.Errorf("%q: granted, with %v", reply, err)
		case err != nil:
		case got.Outcome == driver.Granted && (got.Fence < 1 || got.FenceEnd < got.Fence || got.FenceEnd > driver.MaxFence):
			t.Errorf("%q: granted %d to %d", reply, got.Fence, got.FenceEnd)
		case got.State.Held && (got.State.Age < 0 || got.State.Fence < 0 || got.State.Fence > driver.MaxFence):
			t.Errorf("%q: busy with %+v", reply, got.State)
		}
		for _, strange := range []any{nil, a, []any{}, []any{nil}, []any{value}, []any{a, b}, []any{b, nil}, []any{a, reply}} {
			if got, err := parseAcquire(strange); err == nil && got.Outcome == driver.Granted && got.Fence < 1 {
				t.Errorf("%q: %+v", strange, got)
			}
		}
	})
}

// Every message is parsed or dropped, without a panic and without an invalid grant.
func FuzzWakes(f *testing.F) {
	owner := strings.Repeat("0f", 16)
	for _, message := range []string{
		owner + " 1 5000 0 1795225289897391 1795225289917391", owner + " 12 1000 999 1795225289897391 1795225289897391", "", "     ", owner + " 1 5000 0", owner,
		owner + " 9223372036854775807 9223372036854775807 9223372036854775807 9007199254740991 9007199254740991", owner + " -1 -1 -1 -1 -1",
		owner + " 1 9223372036854775807 0 5 6", owner + " 1 31536000001 0 5 6", owner + " 1 5000 0 6 5", owner + " 1 5000 0 1 9007199254740992",
		owner + " -1 5000 0 5 6", owner + " 1 -5000 0 5 6", owner + " 1 5000 -1 5 6", owner + " +1 0x1 1e3 1 1", owner + " 1 5000 0 5 6 payload",
	} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		to, wake, err := parseWake(message)
		if err != nil {
			return
		}
		g := wake.Grant
		if g.Outcome != driver.Granted || g.Fence < 1 || g.FenceEnd < g.Fence || g.FenceEnd > driver.MaxFence || g.Waiters < 0 ||
			wake.Seq < 0 || wake.TTL < 0 || wake.TTL > 366*24*time.Hour || !strings.HasPrefix(strings.TrimSpace(message), to) {
			t.Errorf("%q is for %q: %+v", message, to, wake)
		}
	})
}
