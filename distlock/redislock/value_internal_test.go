package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// 2^53 - 1 µs are 9007199254 s and 740991 µs.
func TestParseGrant_bounds(t *testing.T) {
	for text, want := range map[string]grant{
		"b1:o:0:0:1:":                      {0, 1},
		"b1:o:0:999999:0:":                 {999999, 0},
		"b1:o:9007199254:720991:20000:":    {driver.MaxFence - driver.FenceBlock, driver.FenceBlock},
		"b1:o:9007199254:720991:0:":        {driver.MaxFence - driver.FenceBlock, 0},
		"b1:o:0:0:9007199254740991:":       {0, driver.MaxFence},
		"b1:o:1795225289:897391:12:a:b":    {1795225289897391, 12},
		"b1:o:0:0:0:":                      {}, // no token
		"b1:o:9007199254:720992:0:":        {}, // the block passes 2^53
		"b1:o:9007199255:0:0:":             {},
		"b1:o:9223372036854:0:0:":          {}, // overflow
		"b1:o:9223372036854775808:0:1:":    {},
		"b1:o:-1:999999:1000000:":          {},
		"b1:o:1:-1:5:":                     {},
		"b1:o:1:1000000:5:":                {},
		"b1:o:1:x:5:":                      {},
		"b1:o:1:1:-5:":                     {},
		"b1:o:1:1:x:":                      {},
		"b1:o:0:1:9007199254740992:":       {},
		"b1:o:1:1:9223372036854775807:":    {}, // overflow
		"b1:o:1:1:5":                       {}, // cut off
		"b2:o:1:1:5:":                      {},
		"xx:o:1795225289:897391:0:payload": {},
	} {
		got, payload, err := parseGrant(text)
		if want == (grant{}) {
			if err == nil {
				t.Errorf("%q: %+v, want an error", text, got)
			}
			continue
		}
		if _, rest, _ := strings.Cut(text, ":12:"); err != nil || got != want || payload != rest {
			t.Errorf("%q: %+v, payload %q, %v; want %+v", text, got, payload, err, want)
		}
	}
}

func TestGrant_endsWithItsBlock(t *testing.T) {
	for ahead, want := range map[int64]int64{0: driver.FenceBlock, driver.FenceBlock: driver.FenceBlock, driver.FenceBlock + 1: driver.FenceBlock + 1} {
		if got := (grant{5, ahead}).end(); got != 5+want {
			t.Errorf("%d µs ahead: it ends at %d, want %d", ahead, got, 5+want)
		}
	}
}

// What a proxy or another version has changed is no state of the lock.
func TestParseAcquire_refusesWhatMakesNoSense(t *testing.T) {
	const value = `b1:o:1795225289:897391:0:{"h":"x"}`
	busy := func(change func(reply []any)) []any {
		reply := []any{int64(0), value, int64(5000), "1795225290", "897391", int64(3), "1795225289000000"}
		change(reply)
		return reply
	}
	got, err := parseAcquire(busy(func([]any) {}))
	if err != nil || got.State.Holder != "x" || got.State.Age != time.Second || got.State.TTL != 5*time.Second || got.State.Fence != 1795225289897391 ||
		got.State.Waiters != 3 || got.Ticket != 1795225289000000 {
		t.Errorf("%+v, %v", got, err)
	}
	full, err := parseAcquire(busy(func(r []any) { r[0], r[6] = int64(3), "" }))
	if err != nil || full.Outcome != driver.Full || full.Ticket != 0 {
		t.Errorf("%+v, %v", full, err)
	}
	back, err := parseAcquire(busy(func(r []any) { r[3] = "1795225288" })) // the server's clock was set back
	if err != nil || back.State.Age != 0 {
		t.Errorf("%+v, %v", back, err)
	}
	for name, reply := range map[string][]any{
		"nothing":           {},
		"a grant, no value": {int64(1)},
		"a grant, and more": {int64(1), value, int64(5000), int64(1)},
		"a grant, no count": {int64(1), value, "5000"},
		"busy, no state":    {int64(0)},
		"busy, half":        {int64(0), value, int64(5000)},
		"an unknown code":   busy(func(r []any) { r[0] = int64(4) }),
		"no ticket":         busy(func(r []any) { r[6] = "first" }),
		"a negative ticket": busy(func(r []any) { r[6] = "-1" }),
		"no count":          busy(func(r []any) { r[5] = "many" }),
		"no code":           {"1", value},
		"no time":           busy(func(r []any) { r[3] = "soon" }),
		"no TTL":            busy(func(r []any) { r[2] = "5000" }),
		"no payload":        busy(func(r []any) { r[1] = "b1:o:1795225289:897391:0:{" }),
	} {
		if got, err := parseAcquire(reply); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

// A Locker's holder is always the same, that of a Driver need not be.
func TestPayload_isThatOfTheRequest(t *testing.T) {
	s := &service{}
	for _, c := range []struct {
		holder   string
		metadata map[string]string
		want     string
	}{
		{"a", nil, `{"h":"a"}`}, {"a", nil, `{"h":"a"}`}, {"b", nil, `{"h":"b"}`}, {"a", map[string]string{"k": "v"}, `{"h":"a","m":{"k":"v"}}`}, {"a", nil, `{"h":"a"}`},
	} {
		if got := s.payload(c.holder, c.metadata); got != c.want {
			t.Errorf("%q with %v: %s, want %s", c.holder, c.metadata, got, c.want)
		}
	}
}
