package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
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
		x := in.session(fmt.Sprint("hostileMessages-", apart), apart)
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
		for _, large := range []int{maxMessage - 1, maxMessage} {
			text := strings.Repeat("\xff", large)
			for what, save := range map[string]func(input, output string) error{
				"in a turn": func(input, output string) error { return x.Save(turn.ctx, input, output) },
				"unchecked": func(input, output string) error { return x.store.Save(turn.unchecked(), input, output) },
				"SaveOnce": func(input, output string) error {
					return x.SaveOnce(turn.ctx, what(large), input, output)
				},
			} {
				if large < maxMessage {
					expect(what, text, "", save(text, ""))
					break // one of them is large enough
				}
				wants(t, what, save(text, ""), sessionstore.ErrTooLarge)
				wants(t, what, save("", text), sessionstore.ErrTooLarge)
			}
		}
		turn.mustEnd(t)
		for id, sentinel := range map[string]error{
			"": lockedmemory.ErrInvalidID, strings.Repeat("i", 513): lockedmemory.ErrInvalidID, "id-" + contents[3]: sessionstore.ErrIDConflict,
		} {
			wants(t, strconv.Quote(id), x.SaveOnce(t.Context(), id, "not", "this"), sentinel)
		}
		messages, err := others.session(x.key, apart).Load(t.Context(), "")
		if err != nil || !slices.Equal(messages, want) {
			t.Errorf("apart %t: %d messages came back, want %d, as they were: %v", apart, len(messages), len(want), err)
		}
		s.mustAsk(t, deleteSession, x.key)
	}
}

func what(n int) string { return "large-" + strconv.Itoa(n) }

// foreignEntry is what another program, or a newer version of this library, has put among the
// exchanges of a session.
type foreignEntry struct {
	place  string
	fields []string
}

// put writes an entry behind the last one, or at a place.
func put(t *testing.T, node *servers.Redis, key, place string, fields ...string) foreignEntry {
	t.Helper()
	return foreignEntry{mustDo(t, node, append([]string{"XADD", logKey(key), place}, fields...)...), fields}
}

// still checks that an entry is where it was.
func (e foreignEntry) still(t *testing.T, node *servers.Redis, key string) {
	t.Helper()
	want := strings.Join(append([]string{e.place}, e.fields...), "\n")
	if reply := mustDo(t, node, "XRANGE", logKey(key), e.place, e.place); reply != want {
		t.Errorf("%s: the entry of another program at %s is %q, was %q", key, e.place, reply, want)
	}
}

// Broken entries, and those of another program, are named by their places. All others are there,
// and new ones come after them. The found entries stay unchanged.
func brokenEntries(t *testing.T, s *service) {
	in, others := s.instance(t, distlock.Options{TTL: time.Minute}), s.instance(t, distlock.Options{TTL: time.Minute})
	var log bytes.Buffer
	in.store = &sessionstore.Options{SkipBroken: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	others.store = in.store
	for _, apart := range []bool{false, true} {
		key := fmt.Sprint("brokenEntries-", apart)
		x, other, node := in.session(key, apart), others.session(key, apart), s.master(key)
		b := new(book)
		var foreign []foreignEntry
		check := func(when string) {
			t.Helper()
			for _, session := range []*session{x, other} {
				log.Reset()
				messages, err := session.Load(t.Context(), "")
				if err != nil {
					t.Errorf("%s: %v", when, err)
				}
				b.check(t, exchanges(t, messages))
				var places []string
				for _, each := range regexp.MustCompile(`place=(\S+)`).FindAllStringSubmatch(log.String(), -1) {
					places = append(places, each[1])
				}
				var want []string
				for _, e := range foreign {
					want = append(want, e.place)
				}
				if !slices.Equal(places, want) {
					t.Errorf("%s: apart %t: broken are %s, want %s", when, apart, places, want)
				}
			}
			for _, e := range foreign {
				e.still(t, node, key)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
		save := func(n int) {
			t.Helper()
			turn := x.begin(t)
			b.mustSave(t, turn.ctx, x, fmt.Sprint("turn-", n, "-1"))
			b.mustSave(t, turn.ctx, x, fmt.Sprint("turn-", n, "-2"))
			turn.mustEnd(t)
			b.mustSave(t, t.Context(), other, fmt.Sprint("outside-", n))
		}
		save(0)
		for n, fields := range [][]string{
			{"op", "x"}, {"op", "x", "m", ""}, {"m", ".q", "m", ".a"}, {"op", "x", "m", ".q", "m", ".a", "more", "x"},
			{"op", "x", "m", "q", "m", ".a"}, {"role", "user", "content", "hello"}, {"", ""}, {"\x00", "\xff"}, {"op", "x", "m", ".q", "id", ""},
			{"mark", "", "more", "x"}, {"clear", "x", "more", "x"}, {"mark", "x"}, {"clear", "x"}, {"op", "x", "m", ".q", "id", "x", "no", "0"},
		} {
			// As the last one and in front of others; by the server's choice, and under a token of
			// its own.
			foreign = append(foreign, put(t, node, key, "*", fields...))
			check(fmt.Sprintf("%q", fields))
			save(2*n + 1)
			top, _, _ := strings.Cut(foreign[len(foreign)-1].place, "-")
			fence, _ := strconv.ParseInt(top, 10, 64)
			foreign = append(foreign, put(t, node, key, fmt.Sprint(fence+time.Second.Microseconds(), "-0"), fields...))
			foreign = append(foreign, put(t, node, key, fmt.Sprint(fence+time.Second.Microseconds(), "-1"), fields...))
			check(fmt.Sprintf("%q at a higher token", fields))
			save(2*n + 2)
			check(fmt.Sprintf("%q before others", fields))
		}

		// Above the highest possible token, no entry can follow. The entries that are there can
		// still be read.
		foreign = append(foreign, put(t, node, key, "9007199254740992-7", "op", "x", "m", ".q", "m", ".a"))
		err := other.save(t.Context(), "too late")
		wants(t, "outside a turn", err, distlock.ErrInvalidOption)
		turn := x.begin(t)
		wants(t, "in a turn", x.save(turn.ctx, "too late"), distlock.ErrInvalidOption)
		turn.mustEnd(t)
		check("above all tokens")
	}
}

// Where the session, its mark, or a turn ID should be, stands something of another program: an
// error that says so, and it is left as it is.
func foreignSessionData(t *testing.T, s *service) {
	in := s.instance(t, distlock.Options{TTL: time.Minute})
	for _, apart := range []bool{false, true} {
		for kind, command := range map[string][]string{"text": {"SET", "", "x"}, "list": {"RPUSH", "", "x"}, "hash": {"HSET", "", "x", "y"}} {
			prefix := fmt.Sprintf("foreignSessionData-%s-%t", kind, apart)
			node := s.master(prefix)
			occupy := func(at string) (still func()) {
				t.Helper()
				command[1] = at
				mustDo(t, node, command...)
				before := mustDo(t, node, "DUMP", at)
				return func() {
					t.Helper()
					if after := mustDo(t, node, "DUMP", at); after != before {
						t.Errorf("the %s at %s has changed", kind, at)
					}
				}
			}
			refused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), "Namespace") {
					t.Errorf("%s on a %s: %v; want an error that says what to do", what, kind, err)
				}
			}

			x := in.session(s.keyAt(prefix+"-session", prefix), apart)
			still := occupy(logKey(x.key))
			turn := x.begin(t)
			refused("Save", x.save(turn.ctx, "x"))
			refused("SaveOnce", x.saveOnce(turn.ctx, "id", "x"))
			refused("Clear", x.Clear(turn.ctx))
			_, err := x.Load(turn.ctx, "")
			refused("Load in a turn", err)
			turn.mustEnd(t)
			_, err = x.Load(t.Context(), "")
			refused("Load", err)
			refused("Save outside a turn", x.save(t.Context(), "x"))
			still()

			x = in.session(s.keyAt(prefix+"-id", prefix), apart)
			b := new(book)
			if kind != "hash" {
				still = occupy("session:{" + x.key + "}:ids")
				refused("SaveOnce", x.saveOnce(t.Context(), "id", "x"))
				still()
			}
			b.mustSave(t, t.Context(), x, "another")
			b.check(t, x.history(t, t.Context()))

			// The session was deleted and begun again. Where the mark of the session was is an entry to
			// remove.
			x = in.session(s.keyAt(prefix+"-place", prefix), apart)
			turn = x.begin(t)
			_ = x.history(t, turn.ctx)
			turn.mustEnd(t)
			place := strings.Split(mustDo(t, node, "GET", markKey(x.key)), ":")[1]
			mustDo(t, node, "DEL", logKey(x.key))
			entry := put(t, node, x.key, place, "role", "user")
			turn = x.begin(t)
			if err := x.save(turn.ctx, "x"); err != nil {
				t.Error(err)
			}
			turn.mustEnd(t)
			entry.still(t, node, x.key)

			if !apart { // the lock itself says whose the session is
				continue
			}
			x = in.session(s.keyAt(prefix+"-mark", prefix), apart)
			if err := x.save(t.Context(), "before"); err != nil {
				t.Error(err)
			}
			mustDo(t, node, "DEL", markKey(x.key))
			still = occupy(markKey(x.key))
			refused("Save to a session that is there", x.save(t.Context(), "more"))
			still()
			mustDo(t, node, "DEL", logKey(x.key))
			refused("Save", x.save(t.Context(), "x"))
			still()
			s.absent(t, x.key)
		}
	}
}

// markKey is where Redis keeps the highest token of a session whose lock is apart.
func markKey(key string) string { return "session:{" + key + "}:mark" }
