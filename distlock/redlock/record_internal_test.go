package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

// A record that no quorum has written is never taken for a lock.
func TestNode_C_foreignTextIsRefused(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	const record = "q1h." + "0123456789abcdef0123456789abcdef" + "00000000000000000000000000000000" +
		"1795225289897391" + "00086401000" + "1795225289897000" + `{"h":"x"}`
	with := func(at int, text string) string { return record[:at-1] + text + record[at-1+len(text):] }
	inspect := func(text string) (quorum.State, error) {
		if err := n.client.Set(t.Context(), lockKey(name), text, driver.FenceKeep+6*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		reply, err := n.Inspect(t.Context(), name)
		return reply.State, err
	}
	s, err := inspect(record)
	if err != nil || !s.Held || s.Owner != "0123456789abcdef0123456789abcdef" || s.Holder != "x" || s.Fence != 1795225289897391 ||
		s.TTL <= 4*time.Second || s.TTL > 5*time.Second {
		t.Errorf("%+v, %v", s, err)
	}
	for what, text := range map[string]string{"released": with(3, "r"), "expired": with(85, "00086420000")} {
		if s, err := inspect(text); err != nil || s.Held {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	for what, text := range map[string]string{
		"nothing": "", "of redislock": with(1, "b2"), "no state": with(3, "x"), "flagged": with(3, "H"), "no dot": with(4, "!"),
		"cut off": record[:110], "no token": with(69, "179522528989739x"), "no keep": with(85, "0008640002x"),
		"no moment": with(96, "179522528989700x"), "no payload": record[:111] + "{",
	} {
		if s, err := inspect(text); !errors.Is(err, driver.ErrForeign) || s.Held {
			t.Errorf("%s: %+v, %v; want ErrForeign", what, s, err)
		}
	}
}

// A reply that a proxy or another version has changed is refused.
func TestParse_S2_invalidReply_refused(t *testing.T) {
	const last, now = int64(1795225289897646), int64(1795225290897000)
	busy := []any{"busy", last, now, strings.Repeat("a", 32), last - quorum.Block, `{"h":"x"}`, int64(1e6), int64(5000)}
	got, err := parse([]any{"granted", last, now})
	if err != nil || got.Outcome != quorum.Granted || got.Last != last || got.Clock != now {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parse([]any{"too low", int64(0), now}); err != nil || got.Outcome != quorum.TooLow || got.Last != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = parse(busy)
	if s := got.State; err != nil || !s.Held || s.Holder != "x" || s.Fence != last-quorum.Block || s.TTL != 5*time.Second || s.Age != time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	for what, parts := range map[string][]any{
		"nothing": {}, "an unknown word": {"full", last, now}, "a number": {int64(1), last, now}, "no last": {"cancelled"},
		"no clock": {"cancelled", last}, "a clock of 0": {"cancelled", last, int64(0)}, "a negative last": {"too low", int64(-1), now},
		"more": {"cancelled", last, now, last}, "a last of 2^53": {"too low", driver.MaxFence + 1, now},
		"text": {"granted", "1", now}, "busy, no holder": {"busy", last, now}, "busy, no TTL": busy[:7],
		"busy, more": append(busy[:8:8], now), "busy, a negative token": append(append(busy[:4:4], int64(-1)), busy[5:]...),
	} {
		if got, err := parse(parts); err == nil || got.Outcome != "" {
			t.Errorf("%s: %+v, want an error", what, got)
		}
	}
}
