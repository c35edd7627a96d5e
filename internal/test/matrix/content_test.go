package matrix

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// maxMessage is Options.MaxMessage by default; the codec adds a byte.
const maxMessage = 8 << 20

// Whatever a message has in it comes back as it was, or is refused, however it is written.
func hostileMessages(t *testing.T, s *service) {
	in, others := s.instance(t, distlock.Options{TTL: time.Minute}), s.instance(t, distlock.Options{TTL: time.Minute})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	contents := []string{
		"", "\x00", "a\x00b", "\r\n", "*1\r\n$8\r\nFLUSHALL\r\n", "$-1\r\n", "-ERR no\r\n", "+OK\r\n", "_\r\n", "\xff\xfe\xfd", "\xed\xa0\x80", string(every),
		"mark", "clear", "op", "m", "id", "no", "NOMKSTREAM", "*", "' .. redis.call('FLUSHALL') .. '", "{}", "%s%n", strings.Repeat("x", 1<<20),
	}
	for _, apart := range []bool{false, true} {
		x := in.session("hostileMessages-"+strconv.FormatBool(apart), apart)
		var want []string
		expect := func(what string, input, output string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			want = append(want, input, output)
		}
		for i, text := range contents {
			other := contents[len(contents)-1-i]
			expect("outside a turn", text, other, x.Save(t.Context(), text, other))
			expect("SaveOnce", other, text, x.SaveOnce(t.Context(), "id-"+text[:min(len(text), 500)], other, text))
		}
		turn := x.begin(t)
		for _, text := range contents {
			expect("in a turn", text, text, x.Save(turn.ctx, text, text))
		}
		large := strings.Repeat("\xff", maxMessage)
		expect("large", large[1:], "", x.Save(turn.ctx, large[1:], ""))
		wants(t, "too large, in a turn", x.Save(turn.ctx, large, ""), sessionstore.ErrTooLarge)
		wants(t, "too large, past the lease", x.store.Save(turn.unchecked(), "", large), sessionstore.ErrTooLarge)
		wants(t, "too large, with an ID", x.SaveOnce(turn.ctx, "large", "", large), sessionstore.ErrTooLarge)
		turn.mustEnd(t)
		wants(t, "another message of an ID", x.SaveOnce(t.Context(), "id-"+contents[3], "not", "this"), sessionstore.ErrIDConflict)
		messages, err := others.session(x.key, apart).Load(t.Context(), "")
		if err != nil || !slices.Equal(messages, want) {
			t.Errorf("apart %t: %d messages came back, want %d, as they were: %v", apart, len(messages), len(want), err)
		}
		s.mustAsk(t, deleteSession, x.key)
	}
}
