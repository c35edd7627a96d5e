package redisstore

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Every entry of a session is a Save, a marker, or an error with the place alone. A Save keeps all
// fields of its entry.
func FuzzEntries(f *testing.F) {
	op := strings.Repeat("0f", 16)
	for i, fields := range [][8]string{
		{"op", op, "m", "q", "m", "a"}, {"op", op, "m", "q", "id", "x"}, {"op", op, "id", "x", "m", "q"},
		{"mark", ""}, {"swap", op}, {"mark", "x"}, {"swap", "x"}, {"mark", "", "more", "x"}, {"op", op}, {"op", op, "m", "q", "m", "q", "id", "a"},
		{"op", op, "m", "\x00\xff\r\n", "m", "*1\r\n"}, {"m", "q", "m", "a"}, {"", "", "", "", "", "", "", ""}, {"op", op, "m", "q", "id", "x", "no", "1"},
		{"op", op, "m", "q", "id", "", "", ""}, {"op", op, "id", "x"}, {"op", op, "m", "q", "m", "a", "m", "r"},
	} {
		length := uint8(8)
		for length > 0 && fields[length-1] == "" {
			length--
		}
		for _, id := range []string{"1795225289897391-1", "18446744073709551615-18446744073709551615", "9007199254740992-7", "0-0", "1", "-", "01-01", "1--1", "+1-1"} {
			for more := range uint8(2) {
				f.Add(id, fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6], fields[7], length+more, uint8(i))
			}
		}
	}
	f.Fuzz(func(t *testing.T, id, a, b, c, d, e, g, h, i string, length, strange uint8) {
		texts := []string{a, b, c, d, e, g, h, i}
		texts = texts[:min(int(length), len(texts))]
		fields := make([]any, len(texts))
		for n, text := range texts {
			fields[n] = text
		}
		place, ok := parsePlace(id)
		if again, same := parsePlace(place.String()); ok && (!same || again != place || place.Fence < 0 || place.N < 0) {
			t.Errorf("%q is the place %+v, and that is %+v", id, place, again)
		}
		check(t, place, texts, fields)

		reply := []any{[]any{id, fields}, []any{id, nil}, []any{id, []any{int64(strange), nil}}, []any{id, []any{fields, fields}}}
		for _, reply := range [][]any{reply, {fields}, {nil}, {id}, {[]any{nil, fields}}, {[]any{id, fields, fields}}, {[]any{int64(1), fields}}} {
			entries, last, err := parseEntries(reply)
			if understood := ok && len(reply) == 4; (err == nil) != understood && len(fields) != 2 {
				t.Errorf("%q: %v", reply, err)
			}
			if n := len(reply); err == nil && (last != place || len(entries) > n || len(entries) < n-1) {
				t.Errorf("%q: %d entries, the last at %s", reply, len(entries), last)
			}
		}

		for _, reply := range [][]any{{int64(strange)}, {int64(strange), id}, {int64(strange), fields}, {id}, {}, fields} {
			v, _, err := parseVerdict(replied(reply))
			if err == nil && (v.Outcome < storedriver.Done || v.Mark.Fence < 0 || v.Mark.N < 0) {
				t.Errorf("%q: %+v", reply, v)
			}
		}
	})
}

func replied(reply []any) *redis.Cmd {
	cmd := redis.NewCmd(context.Background())
	cmd.SetVal(reply)
	return cmd
}

func check(t *testing.T, place lockedmemory.Place, texts []string, fields []any) {
	t.Helper()
	entry, isMark := parseEntry(place, fields)
	if isMark != (len(texts) == 2 && (texts[0] == "mark" && texts[1] == "" || texts[0] == "swap" && len(texts[1]) == 32)) {
		t.Errorf("%q is a marker: %t", texts, isMark)
	}
	if isMark {
		return
	}
	if entry.Place != place {
		t.Errorf("%q: its place is %s, not %s", texts, entry.Place, place)
	}
	if entry.Err != nil {
		if entry.Messages != nil || entry.ID != "" || entry.Size != len(strings.Join(texts, "")) {
			t.Errorf("%q: %+v with an error", texts, entry)
		}
		return
	}
	// All fields, in their order.
	kept := []string{"op", texts[1]}
	for _, message := range entry.Messages {
		kept = append(kept, "m", string(message))
	}
	if entry.ID != "" {
		kept = append(kept, "id", entry.ID)
	}
	if entry.Pinned {
		kept = append(kept, "pin", texts[len(texts)-1])
	}
	if !slices.Equal(kept, texts) || len(entry.Messages) == 0 || place.Fence > driver.MaxFence {
		t.Errorf("%s: %q was parsed as %+v", place, texts, entry)
	}
}
