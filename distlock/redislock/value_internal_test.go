package redislock

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const someRecord = "b2h!" + "0123456789abcdef0123456789abcdef" + "fedcba9876543210fedcba9876543210" +
	"1795225289897391" + "1795225289917391" + "00086400020" + `{"h":"x"}`

// with replaces the text of a record at a place, counted from 1.
func with(at int, text string) string { return someRecord[:at-1] + text + someRecord[at-1+len(text):] }

func TestParseRecord_C_foreignTextIsRefused(t *testing.T) {
	r, err := parseRecord(someRecord)
	want := record{
		held: true, owner: "0123456789abcdef0123456789abcdef", previous: "fedcba9876543210fedcba9876543210",
		token: 1795225289897391, last: 1795225289917391, keep: driver.FenceKeep + 20*time.Millisecond, payload: `{"h":"x"}`,
	}
	if err != nil || r != want {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
	if r, err := parseRecord(with(3, "R.")); err != nil || r.held || !r.flagged {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := parseRecord(with(69, "9007199254740991"+"9007199254740991")); err != nil || r.last != driver.MaxFence {
		t.Errorf("%+v, %v", r, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "another version": with(1, "b1"), "no state": with(3, "x"), "no ending": with(4, "?"),
		"cut off": someRecord[:headerLen-1], "no token": with(69, "179522528989739x"), "a sign": with(69, "+795225289897391"),
		"no block": with(85, "179522528991739x"), "no keep": with(101, "0008640002x"),
		"a block before its token": with(85, "1795225289897390"), "a token of 2^53": with(69, "9007199254740992"+"9007199254740992"),
	} {
		if r, err := parseRecord(text); !errors.Is(err, driver.ErrForeign) {
			t.Errorf("%s: %+v, %v; want ErrForeign", name, r, err)
		}
	}
}

// The age counts from the grant, also of a token ahead of the clock.
func TestRecord_age_countsFromTheGrant(t *testing.T) {
	const now = 1795225290_000000
	for name, c := range map[string]struct {
		token, last int64
		keep, want  time.Duration
	}{
		"fresh":          {now - 5e6, now - 5e6 + 20_000, driver.FenceKeep + 20*time.Millisecond, 5 * time.Second},
		"after a block":  {now - 5e6 + 1000, now - 5e6 + 20_000, driver.FenceKeep + 20*time.Millisecond, 5 * time.Second},
		"an hour ahead":  {now - 5e6 + 3600e6, now - 5e6 + 3600e6, driver.FenceKeep + time.Hour, 5 * time.Second},
		"clock set back": {now + 5e6, now + 5e6 + 20_000, driver.FenceKeep + 20*time.Millisecond, 0},
	} {
		r := record{held: true, token: c.token, last: c.last, keep: c.keep, payload: "{}"}
		if state, err := r.state(c.keep+time.Second, now, 0); err != nil || !state.Held || state.Age != c.want || state.TTL != time.Second {
			t.Errorf("%s: %+v, %v; want the age %s", name, state, err, c.want)
		}
	}
}

// A reply that a proxy or another version has changed is refused.
func TestParseAcquire_S2_invalidReply_refused(t *testing.T) {
	const ttl = int64(86_400_020 + 5000)
	busy := func(change func(reply []any)) []any {
		reply := []any{"busy", someRecord, ttl, "1795225290", "897391", int64(3), int64(1795225289000000)}
		change(reply)
		return reply
	}
	got, err := parseAcquire(busy(func([]any) {}))
	if err != nil || got.State.Holder != "x" || got.State.Age != time.Second || got.State.TTL != 5*time.Second || got.State.Fence != 1795225289897391 ||
		got.State.Waiters != 3 || got.Ticket != 1795225289000000 {
		t.Errorf("%+v, %v", got, err)
	}
	full, err := parseAcquire(busy(func(r []any) { r[0], r[6] = "full", int64(0) }))
	if err != nil || full.Outcome != driver.Full || full.Ticket != 0 {
		t.Errorf("%+v, %v", full, err)
	}
	grant, err := parseAcquire("179522528989739117952252899173917")
	if err != nil || grant.Outcome != driver.Granted || grant.Fence != 1795225289897391 || grant.FenceEnd != 1795225289917391 || grant.Waiters != 7 {
		t.Errorf("%+v, %v", grant, err)
	}
	for name, text := range map[string]string{
		"no text": "", "no token": "granted", "no count": "17952252898973911795225289917391", "a negative count": "17952252898973911795225289917391-1",
		"no block": "179522528991739117952252898973910", "token 0": "000000000000000017952252898973910", "beyond 2^53": "179522528989739190071992547409920",
		"a sign": "+79522528989739117952252899173910",
	} {
		if got, err := parseAcquire(text); err == nil {
			t.Errorf("a grant, %s: %+v, want an error", name, got)
		}
	}
	for name, reply := range map[string][]any{
		"nothing":           {},
		"an old grant":      {"granted", int64(1), int64(5), int64(0)},
		"busy, no state":    {"busy"},
		"busy, half":        {"busy", someRecord, ttl},
		"an unknown name":   busy(func(r []any) { r[0] = "taken" }),
		"no ticket":         busy(func(r []any) { r[6] = "first" }),
		"a negative ticket": busy(func(r []any) { r[6] = int64(-1) }),
		"no count":          busy(func(r []any) { r[5] = "many" }),
		"a number":          {int64(1), someRecord},
		"no time":           busy(func(r []any) { r[3] = "soon" }),
		"no TTL":            busy(func(r []any) { r[2] = "5000" }),
		"no payload":        busy(func(r []any) { r[1] = someRecord[:headerLen] + "{" }),
	} {
		if got, err := parseAcquire(reply); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
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

// Tokens rise, also where the clock shows the last token of a block, which may be another holder's. A number
// of the record has a fixed width, also where the clock starts at 1970. A clock that steps back by decades
// makes no record too long.
func TestAcquire_S2_anyClock_rises(t *testing.T) {
	db := servers.SharedRedis(t)
	client := redis.NewClient(&redis.Options{Addr: db.Addr(), DB: db.DB()})
	t.Cleanup(func() { _ = client.Close() })
	keys := keysOf(driver.Name{Namespace: "n", Key: "k"}).all()
	const early = 1_000_000
	today, r := time.Now().UnixMicro(), record{}
	for i, now := range []int64{early, today, today + driver.FenceBlock, early} {
		owner, want := strings.Repeat(string(rune('a'+i)), ownerLen), max(now, r.last+1)
		words := acquireScript.Command(t.Context(), keys, owner, 30_000, "{}").Whole().Args()
		words[1] = strings.ReplaceAll(fmt.Sprint(words[1]), "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", now/1e6, now%1e6))
		reply, err := client.Do(t.Context(), words...).Result()
		grant := parts(reply)
		r, _ = parseRecord(client.Get(t.Context(), keys[0]).Val())
		if err != nil || grant[0] != "granted" || grant[1] != want || r.token != want {
			t.Fatalf("at %d: %v, %v, and the record is %+v; want the token %d", now, reply, err, r, want)
		}
		if err := releaseScript.Script.Run(t.Context(), client, keys, owner).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if r.keep < 3*365*24*time.Hour {
		t.Errorf("the record is kept for %s", r.keep)
	}
}

var hostileNames = []string{
	"k", "a:b", "}", "}}", "{", "{}", "}{", "a}b", "a{b}c", "}:lock", "%7D", "%", "%25", "a}:lock", "lock", "queue", "waiters", "tombstones", ":", "日本", " ",
	strings.Repeat("}", 1024),
}

// Two names share all of their keys or none. The keys of one name share a slot.
func FuzzKeys(f *testing.F) {
	for _, name := range hostileNames {
		for _, other := range hostileNames { // the escaped form of a key is a valid key, too
			f.Add("app", name, "app", other)
		}
		f.Add(name, "k", "app:", name)
	}
	f.Fuzz(func(t *testing.T, namespace1, key1, namespace2, key2 string) {
		one, two := driver.Name{Namespace: namespace1, Key: key1}, driver.Name{Namespace: namespace2, Key: key2}
		if valid(one) && valid(two) { // a Locker refuses others
			wantApart(t, one, two)
		}
	})
}

func wantApart(t *testing.T, one, two driver.Name) {
	t.Helper()
	for _, name := range []driver.Name{one, two} {
		tag := hashTag(keysOf(name).lock())
		for _, key := range keysOf(name).all() {
			if tag == "" || hashTag(key) != tag {
				t.Errorf("%q: the hash tag of %q is %q, of its lock %q", name, key, hashTag(key), tag)
			}
		}
	}
	for _, key := range keysOf(one).all() {
		if slices.Contains(keysOf(two).all(), key) != (one == two) {
			t.Errorf("%q and %q: both have the key %q", one, two, key)
		}
	}
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
