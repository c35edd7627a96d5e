package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A session expires after IdleTTL without use. A turn is a use, also a turn that only loads. A Load
// outside a turn is not.
func idleSessionsExpire(h *harness) {
	opts := &options{Retention: sessionstore.Retention{IdleTTL: 1500 * time.Millisecond}}
	a := h.instance(opts, nil)
	for inTime := false; !inTime; { // or it may have expired with good reason
		if err := a.memory.Clear(h.Context()); err != nil {
			h.Fatal(err)
		}
		var used time.Time
		inTime = true
		use := func(fn func()) {
			began := time.Now()
			fn()
			inTime = inTime && (used.IsZero() || time.Since(used) < opts.IdleTTL)
			used = began
		}
		use(func() { a.mustSave(h.Context(), 1) })
		time.Sleep(500 * time.Millisecond)
		use(func() {
			a.turn(func(ctx context.Context) {
				if _, err := a.memory.Load(ctx, ""); err != nil {
					h.Error(err)
				}
			})
		})
		time.Sleep(time.Second)
		use(func() { a.turn(func(ctx context.Context) { a.mustSave(ctx, 2, 3) }) })
		time.Sleep(500 * time.Millisecond)
		messages, err := a.store.Load(h.Context(), "")
		if inTime = inTime && time.Since(used) < opts.IdleTTL; inTime && (err != nil || len(messages) != 6) {
			h.Errorf("it has expired though it was in use: %s, %v", text(messages), err)
		}
	}
	start := time.Now()
	a.awaitEmpty()
	if took := time.Since(start); took > 4*time.Second {
		h.Errorf("it took %s to expire", took)
	}
	a.mustSave(h.Context(), 4)
	a.has(4)
}

// keeping is a driver of which a store reads as if the driver had another retention.
type keeping struct {
	storedriver.Driver
	retention storedriver.Retention
}

func (k keeping) Retention() storedriver.Retention { return k.retention }

// over makes an instance that shares the driver of i, which keeps its own retention.
func (i *instance) over(opts *options, wrap func(storedriver.Driver) storedriver.Driver) *instance {
	return i.instance(opts, func(storedriver.Driver) storedriver.Driver {
		d := keeping{Driver: i.driver} // and the store reads all that is there
		if opts != nil {
			d.retention = opts.Retention
		}
		if wrap == nil {
			return d
		}
		return wrap(d)
	})
}

func maxExchangesAndWindow(h *harness) {
	kept := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 10}}, nil)
	var all []any
	for n := range 200 {
		all = append(all, fmt.Sprint(n))
	}
	check := func(want ...any) {
		h.Helper()
		kept.turn(kept.mustLoad) // trims
		kept.has(want...)
		if got := kept.stored(); !slices.Equal(got, want) {
			h.Errorf("Forward yields %s, want %s", got, want)
		}
		if found, err := kept.store.Search(h.Context(), "q", 1000); err != nil || len(found) != len(want) {
			h.Errorf("Search finds %d, %v; want the %d that are kept", len(found), err, len(want))
		}
	}
	kept.mustSave(h.Context(), all[:5]...)
	check(all[:5]...)
	kept.turn(func(ctx context.Context) { kept.mustSave(ctx, all[5:60]...) })
	check(all[5:60]...)
	kept.mustSave(h.Context(), all[60:]...)
	check(all[190:]...)
	window := h.instance(&options{sessionstore.Retention{MaxExchanges: 10}, sessionstore.Options{Window: 4}}, nil)
	window.has(all[196:]...)
	for query, want := range map[string][]any{"q19": all[196:], "q191": all[191:192], "q189": nil} {
		messages, err := window.store.Load(h.Context(), query)
		if err != nil || len(messages) != 2*len(want) || len(want) > 0 && messages[0] != question(want[0]) {
			h.Errorf("the last 4 that match %s: %s, %v", query, text(messages), err)
		}
	}
}

// Limits do not cut inside a turn: neither Window when a session is read, nor the driver when it trims.
func turnsAreNotCut(h *harness) {
	a := h.instance(nil, nil)
	turns := [][]any{{"1", "2"}, {"3", "4", "5"}, {"6"}, {"7", "8"}}
	for _, names := range turns {
		a.turn(func(ctx context.Context) { a.mustSave(ctx, names...) })
	}
	all := slices.Concat(turns...)
	for limit, from := range []int{0, 6, 6, 5, 5, 5, 2, 2, 0, 0} {
		for size := range 4 {
			wrap := func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: max(3*size, 1)} }
			a.over(&options{view: sessionstore.Options{Window: limit}}, wrap).has(all[from:]...)
		}
	}
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	trims := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 3}}, nil)
	stored := trims.over(nil, nil)
	turns = append(turns, []any{"9", "10", "11", "12"})
	for n, want := range [][]any{nil, turns[0], turns[1], turns[2], {"6", "7", "8"}, turns[4]} {
		trims.turn(func(ctx context.Context) {
			if _, err := trims.memory.Load(ctx, ""); err != nil {
				h.Error(err)
			}
			stored.has(want...)
			if n < len(turns) {
				trims.mustSave(ctx, turns[n]...)
			}
		})
	}
}

func queries(h *harness) {
	a := h.instance(nil, nil)
	ctx := h.Context()
	for _, pair := range [][2]string{
		{"How is the Weather in Oslo?", "Rain."}, {"And in Rome?", "The weather is fine."}, {"Danke", "Bitte schön"},
		{"weather", "weather in oslo"},
	} {
		if err := a.memory.Save(ctx, Message{"user", pair[0]}, Message{"assistant", pair[1]}); err != nil {
			h.Fatal(err)
		}
	}
	for query, want := range map[string][]string{
		"": {"How is the Weather in Oslo?", "Rain.", "And in Rome?", "The weather is fine.", "Danke",
			"Bitte schön", "weather", "weather in oslo"},
		"WEATHER oslo": {"How is the Weather in Oslo?", "Rain.", "weather", "weather in oslo"},
		"  rain.\t":    {"How is the Weather in Oslo?", "Rain."},
		"SCHÖN":        {"Danke", "Bitte schön"},
		"rain rome":    {}, // words of two messages
		"snow":         {},
	} {
		messages, err := a.memory.Load(ctx, query)
		got := make([]string, len(messages))
		for i, m := range messages {
			got[i] = m.Text
		}
		if err != nil || !slices.Equal(got, want) {
			h.Errorf("Load(%q): %q, %v; want %q", query, got, err, want)
		}
	}
	for _, c := range []struct {
		query string
		k     int
		want  []string
	}{
		{"weather", 2, []string{"weather in oslo", "weather"}},
		{"weather", 9, []string{"weather in oslo", "weather", "The weather is fine.", "How is the Weather in Oslo?"}},
		{"", 3, []string{"weather in oslo", "weather", "Bitte schön"}},
		{"", math.MaxInt, []string{"weather in oslo", "weather", "Bitte schön", "Danke", "The weather is fine.",
			"And in Rome?", "Rain.", "How is the Weather in Oslo?"}},
		{"weather", 0, nil},
		{"snow", 5, nil},
	} {
		found, err := a.memory.Search(ctx, c.query, c.k)
		var got []string
		for _, m := range found {
			got = append(got, m.Text)
		}
		if err != nil || !slices.Equal(got, c.want) {
			h.Errorf("Search(%q, %d): %q, %v; want %q", c.query, c.k, got, err, c.want)
		}
	}
}

// small makes every page small.
type small struct {
	storedriver.Driver
	limit  int
	before func(page int) // called before a page is read, with its number
	pages  int
}

func (s *small) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	if s.before != nil {
		s.before(s.pages)
	}
	s.pages++
	r.Limit = min(r.Limit, s.limit)
	return s.Driver.Read(ctx, r)
}

// Pages of any size give the same history, with markers of turns that only loaded in between.
func pages(h *harness) {
	a := h.instance(nil, nil)
	var all []any
	for n := range 20 {
		all = append(all, n)
		a.turn(func(ctx context.Context) {
			if _, err := a.memory.Load(ctx, ""); err != nil {
				h.Error(err)
			}
			if n%2 == 0 {
				a.mustSave(ctx, n)
			}
		})
		if n%2 == 1 {
			a.mustSave(h.Context(), n)
		}
	}
	for limit := 1; limit < 8; limit++ {
		b := h.instance(nil, func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: limit} })
		b.has(all...)
		b.turn(func(ctx context.Context) {
			if messages, err := b.memory.Load(ctx, ""); err != nil || len(messages) != 40 {
				h.Errorf("under a lease, in pages of %d: %d messages, %v", limit, len(messages), err)
			}
		})
		if found, err := b.store.Search(h.Context(), "q1", 100); err != nil || len(found) != 11 ||
			found[0] != question(19) || found[10] != question(1) {
			h.Errorf("Search in pages of %d: %s, %v", limit, text(found), err)
		}
		n := 0
		for e, err := range b.store.Forward(h.Context(), lockedmemory.Place{}) {
			if err != nil || e.Input() != question(n) || e.Output() != answer(n) {
				h.Errorf("Forward in pages of %d: %d is %+v, %v", limit, n, e, err)
			}
			n++
		}
		if n != 20 {
			h.Errorf("Forward in pages of %d: %d exchanges", limit, n)
		}
		w := h.instance(&options{view: sessionstore.Options{Window: 7}},
			func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: limit} })
		w.has(all[13:]...)
	}
}

// Before the second page is read, the session is cleared and written to. The pages read before are no
// longer history: Load reads the new one, and Forward ends.
func clearedBetweenPages(h *harness) {
	a := h.instance(nil, nil)
	for _, forward := range []bool{true, false} {
		a.mustSave(h.Context(), 1, 2, 3, 4, 5, 6, 7, 8)
		clear := func(page int) {
			if page != 2 {
				return
			}
			if err := a.memory.Clear(h.Context()); err != nil {
				h.Error(err)
			}
			a.mustSave(h.Context(), "new", "newer")
		}
		cleared := func(opts *options) *instance {
			return h.instance(opts, func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: 2, before: clear} })
		}
		if forward {
			cleared(nil).has("new", "newer")
			a.mustSave(h.Context(), 1, 2, 3, 4, 5, 6, 7, 8)
			var seen []string
			for e, err := range cleared(nil).store.Forward(h.Context(), lockedmemory.Place{}) {
				if errors.Is(err, sessionstore.ErrChanged) {
					seen = append(seen, "changed")
					continue
				} else if err != nil {
					h.Fatal(err)
				}
				seen = append(seen, e.Input().Text)
			}
			if want := "qnew qnewer q1 q2 changed"; strings.Join(seen, " ") != want {
				h.Errorf("Forward yields %q, want %q", seen, want)
			}
		} else {
			cleared(&options{view: sessionstore.Options{Window: 8}}).has("new", "newer")
		}
		if err := a.memory.Clear(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
}

// refusing is a codec that refuses some messages.
type refusing struct {
	sessionstore.JSON[Message]
	encode, decode string // what it refuses
}

var errRefusing = errors.New("refusing")

func (p refusing) Encode(m Message) ([]byte, error) {
	if m.Text == p.encode {
		return nil, errRefusing
	}
	return p.JSON.Encode(m)
}

func (p refusing) Decode(text []byte) (Message, error) {
	m, err := p.JSON.Decode(text)
	if m.Text == p.decode {
		err = errRefusing
	}
	return m, err
}

// An entry that the codec refuses ends a call, or is left out and logged.
func codecRefuses(h *harness) {
	a := h.instance(nil, nil)
	a.mustSave(h.Context(), 1, 2, 3, 4)
	var place string
	for e := range a.store.Forward(h.Context(), lockedmemory.Place{}) {
		if e.Input() == question(3) {
			place = e.Place.String()
		}
	}
	for _, limit := range []int{0, 4} {
		for _, skip := range []bool{false, true} {
			var log bytes.Buffer
			store, err := sessionstore.New(a.driver,
				lockedmemory.FixedKey(h.session), refusing{decode: "a3"},
				&sessionstore.Options{Window: limit, SkipBroken: skip, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				h.Fatal(err)
			}
			found, errs := map[string][]Message{}, map[string]error{}
			found["Load"], errs["Load"] = store.Load(h.Context(), "")
			found["Search"], errs["Search"] = store.Search(h.Context(), "", 9)
			for call, read := range map[string]func(context.Context, lockedmemory.Place,
			) iter.Seq2[lockedmemory.Exchange[Message], error]{"Forward": store.Forward, "Backward": store.Backward} {
				for e, err := range read(h.Context(), lockedmemory.Place{}) {
					found[call], errs[call] = append(found[call], e.Messages...), err
				}
			}
			forward := []Message{question(1), answer(1), question(2), answer(2)}
			want := map[string][]Message{"Forward": forward, "Backward": {question(4), answer(4)}}
			if skip {
				forward = append(forward, question(4), answer(4))
				want = map[string][]Message{"Load": forward, "Forward": forward,
					"Search":   {answer(4), question(4), answer(2), question(2), answer(1), question(1)},
					"Backward": {question(4), answer(4), question(2), answer(2), question(1), answer(1)}}
				if n := strings.Count(log.String(), place); n != len(errs) {
					h.Errorf("the place is logged %d times by %d calls: %s", n, len(errs), &log)
				}
			}
			for call, err := range errs {
				if !slices.Equal(found[call], want[call]) {
					h.Errorf("%s, Window %d: %s, want %s", call, limit, text(found[call]), text(want[call]))
				}
				var entry *sessionstore.EntryError
				if skip && err != nil || !skip && (!errors.As(err, &entry) || !errors.Is(err, sessionstore.ErrBroken) ||
					!errors.Is(err, sessionstore.ErrCodec) || !errors.Is(err, errRefusing) ||
					entry.Place.String() != place || !strings.Contains(err.Error(), place)) {
					h.Errorf("%s, SkipBroken %t: %v; want the entry at %s", call, skip, err, place)
				}
			}
		}
	}
}

func badInput(h *harness) {
	a := h.instance(&options{view: sessionstore.Options{MaxMessage: 1000}}, nil)
	ctx := h.Context()
	a.mustSave(ctx, 1)
	store := func(key lockedmemory.KeyFunc, codec sessionstore.Codec[Message, Message]) *Memory {
		s, err := sessionstore.New(a.driver, key, codec, &sessionstore.Options{MaxMessage: 1000})
		if err != nil {
			h.Fatal(err)
		}
		m, err := lockedmemory.New(s, a.locker, lockedmemory.FixedKey(h.session), nil)
		if err != nil {
			h.Fatal(err)
		}
		return m
	}
	own := lockedmemory.FixedKey(h.session)
	failing := func(context.Context) (string, error) { return "", errRefusing }
	big := Message{"user", strings.Repeat("x", 1001)}
	for name, c := range map[string]struct {
		memory *Memory
		input  Message
		want   []error
		says   string
	}{
		"a message that is too large": {a.memory, big, []error{sessionstore.ErrTooLarge}, "1000"},
		"a codec that fails": {store(own, refusing{encode: "bad"}), Message{"user", "bad"},
			[]error{sessionstore.ErrCodec, errRefusing}, "message 1"},
		"no session": {store(lockedmemory.FixedKey(""), codec), question(0),
			[]error{distlock.ErrInvalidKey}, "empty"},
		"a KeyFunc that fails": {store(failing, codec), question(0), []error{distlock.ErrInvalidKey, errRefusing},
			"KeyFunc"},
		"the lease of another session": {store(lockedmemory.FixedKey(h.session+"2"), codec), question(0),
			[]error{distlock.ErrNotHeld}, "another session"},
	} {
		in := func(ctx context.Context) error { return c.memory.Save(ctx, c.input, answer(0)) }
		for where, err := range map[string]error{"outside a turn": in(ctx), "in a turn": c.memory.Turn(ctx, in)} {
			for _, want := range c.want {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), h.session) {
					h.Errorf("%s, %s: %v; want %v, which says %q and not the session", name, where, err, want, c.says)
				}
			}
		}
	}
	if err := a.store.Save(ctx, question(0), answer(0)); !errors.Is(err, distlock.ErrNotHeld) {
		h.Errorf("Save without a lease: %v", err)
	}
	if err := a.store.Clear(ctx); !errors.Is(err, distlock.ErrNotHeld) {
		h.Errorf("Clear without a lease: %v", err)
	}
	if _, err := a.store.Search(ctx, "q", -1); !errors.Is(err, distlock.ErrInvalidOption) {
		h.Errorf("Search with a negative k: %v", err)
	}
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errRefusing)
	if err := a.save(ended, 0); !errors.Is(err, context.Canceled) {
		h.Errorf("Save with a context that has ended: %v", err)
	}
	if _, err := a.store.Load(ended, ""); !errors.Is(err, context.Canceled) {
		h.Errorf("Load with a context that has ended: %v", err)
	}
	a.has(1)
}

// stored returns the names of all exchanges.
func (i *instance) stored() []any {
	i.Helper()
	return i.names(i.store.Forward(i.Context(), lockedmemory.Place{}), 1e6)
}

// Every byte survives, in messages and in IDs, and so do commands, scripts, and words of the stores.
func everyByte(h *harness) {
	a := h.instance(nil, nil)
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	messages := [][]byte{all, {}, []byte(`{"\x00,NULL}`), bytes.Repeat(all, 4<<10)}
	for _, text := range []string{"*1\r\n$8\r\nFLUSHALL\r\n", "$-1\r\n", "' .. redis.call('FLUSHALL') .. '", "mark", "clear", "op", "m", "id", "*"} {
		messages = append(messages, []byte(text))
	}
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		check := func(v storedriver.Verdict, err error) (e storedriver.Entry) {
			h.Helper()
			page, err2 := a.driver.Read(ctx, storedriver.Read{Access: storedriver.Access{Session: h.session}, ID: string(all), Limit: 1})
			if err := errors.Join(err, err2); err != nil || v.Outcome != storedriver.Done || len(page.Entries) != 1 || !page.Known {
				h.Fatalf("%+v, %+v, %v", v, page, err)
			}
			if e = page.Entries[0]; !slices.EqualFunc(e.Messages, messages, bytes.Equal) || e.ID != string(all) {
				h.Errorf("%+v", e)
			}
			return e
		}
		e := check(a.driver.Append(ctx, storedriver.Append{Write: a.write(lease, 1), Content: storedriver.Content{Messages: messages, IDs: []string{string(all)}}}))
		check(a.driver.Replace(ctx, storedriver.Replace{Write: a.write(lease, 2), From: e.Place, To: e.Place, New: []storedriver.Entry{e}}))
	})
}
