package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

const someRecord = "q1h." + "0123456789abcdef0123456789abcdef" + "00000000000000000000000000000000" +
	"1795225289897391" + "00086401000" + "1795225289897000" + `{"h":"x"}`

// with replaces the text of a record at a place, counted from 1.
func with(at int, text string) string { return someRecord[:at-1] + text + someRecord[at-1+len(text):] }

const now = int64(1795225290897000)

func TestStateOf_C_foreignTextIsRefused(t *testing.T) {
	ttl := driver.FenceKeep + 6*time.Second
	state, err := stateOf(someRecord, ttl, now)
	if err != nil || !state.Held || state.Owner != "0123456789abcdef0123456789abcdef" || state.Holder != "x" ||
		state.Fence != 1795225289897391 || state.Age != time.Second || state.TTL != 5*time.Second {
		t.Errorf("%+v, %v", state, err)
	}
	if state, err := stateOf(someRecord, -time.Millisecond, now); err != nil || !state.Held || state.TTL >= 0 {
		t.Errorf("without a TTL: %+v, %v", state, err)
	}
	for what, text := range map[string]string{"released": with(3, "r"), "expired": someRecord} {
		if what == "expired" {
			ttl = driver.FenceKeep + time.Second
		}
		if state, err := stateOf(text, ttl, now); err != nil || state.Held {
			t.Errorf("%s: %+v, %v", what, state, err)
		}
	}
	ttl = driver.FenceKeep + 6*time.Second
	for what, text := range map[string]string{
		"nothing": "", "of redislock": with(1, "b2"), "no state": with(3, "x"), "flagged": with(3, "H"), "no dot": with(4, "!"),
		"cut off": someRecord[:payloadAt-1], "no token": with(69, "179522528989739x"), "a sign": with(69, "+795225289897391"),
		"no keep": with(85, "0008640002x"), "no moment": with(96, "179522528989700x"), "a token of 2^53": with(69, "9007199254740992"),
		"token 0": with(69, "0000000000000000"), "no payload": someRecord[:payloadAt] + "{",
	} {
		if state, err := stateOf(text, ttl, now); !errors.Is(err, driver.ErrForeign) || state.Held {
			t.Errorf("%s: %+v, %v; want ErrForeign", what, state, err)
		}
	}
}

// A reply that a proxy or another version has changed is refused.
func TestParse_S2_invalidReply_refused(t *testing.T) {
	const last, ttl = int64(1795225289897646), int64(86_401_000 + 5000)
	got, err := parseAcquire([]any{"granted", last, now})
	if err != nil || got.Outcome != quorum.Granted || got.Last != last || got.Clock != now {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseAcquire([]any{"too low", int64(0), now}); err != nil || got.Outcome != quorum.TooLow || got.Last != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseAcquire([]any{"busy", last, now, someRecord, ttl}); err != nil || got.State.Holder != "x" || got.State.TTL != 5*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	for what, parts := range map[string][]any{
		"nothing": {}, "an unknown word": {"full", last, now}, "a number": {int64(1), last, now}, "no last": {"cancelled"},
		"no clock": {"cancelled", last}, "a clock of 0": {"cancelled", last, int64(0)}, "a negative last": {"too low", int64(-1), now},
		"more": {"cancelled", last, now, last}, "a last of 2^53": {"too low", driver.MaxFence + 1, now},
		"text": {"granted", "1", now}, "busy, no record": {"busy", last, now}, "busy, no TTL": {"busy", last, now, someRecord},
		"busy, damaged": {"busy", last, now, "q1", ttl},
	} {
		if got, err := parseAcquire(parts); err == nil || got.Outcome == quorum.Granted {
			t.Errorf("%s: %+v, want an error", what, got)
		}
	}
	for what, parts := range map[string][]any{
		"nothing": {}, "an unknown word": {"raised"}, "no token": {"held"}, "token 0": {"held", int64(0)},
		"more": {"not held", last}, "beyond 2^53": {"held", driver.MaxFence + 1},
	} {
		if got, err := parseRaise(parts); err == nil || got.Held {
			t.Errorf("raise, %s: %+v, want an error", what, got)
		}
	}
	for what, parts := range map[string][]any{
		"no TTL": {someRecord}, "no clock": {someRecord, ttl}, "more": {someRecord, ttl, now, now}, "a number": {ttl, ttl, now},
	} {
		if got, err := parseInspect(parts); err == nil || got.Held {
			t.Errorf("inspect, %s: %+v, want an error", what, got)
		}
	}
}

// Every record is read or refused, without a panic and without an invalid token.
func FuzzStateOf(f *testing.F) {
	for _, text := range []string{someRecord, with(3, "r"), with(69, "9007199254740991"), strings.Repeat("q1h.", 40), ""} {
		f.Add(text, int64(86_406_000))
	}
	f.Fuzz(func(t *testing.T, text string, ttl int64) {
		state, err := stateOf(text, time.Duration(ttl%1e9)*time.Millisecond, now)
		if err != nil && !errors.Is(err, driver.ErrForeign) || state.Held && (state.Fence < 1 || state.Fence > driver.MaxFence || state.Age < 0) {
			t.Errorf("%q: %+v, %v", text, state, err)
		}
	})
}
