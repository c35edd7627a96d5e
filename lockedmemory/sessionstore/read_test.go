package sessionstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// counting is a driver that counts its Reads, and knows the largest answer. Its entries may be broken.
type counting struct {
	storedriver.Driver
	reads, largest int
	broken         bool
}

func (d *counting) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	page, err := d.Driver.Read(ctx, r)
	size := 0
	for i, e := range page.Entries {
		for _, m := range e.Messages {
			size += len(m)
		}
		if d.broken {
			page.Entries[i] = storedriver.Entry{Place: e.Place, Err: errors.New("broken"), Size: 2 * len(e.Messages[0])}
		}
	}
	d.reads++
	d.largest = max(d.largest, size)
	return page, err
}

// filled makes a store of a session with exchanges of a size, each in a turn of its own, two hours ago.
func filled(t *testing.T, exchanges, size int, opts *sessionstore.Options) (*sessionstore.Store[string, string],
	*counting) {
	t.Helper()
	d := &counting{}
	var err error
	d.Driver, err = memstore.NewDriver(nil)
	must(t, err)
	store, err := sessionstore.New(d, lockedmemory.FixedKey("s"), plain{}, opts)
	must(t, err)
	first := time.Now().Add(-2 * time.Hour).UnixMicro()
	text := bytes.Repeat([]byte("x"), size/2)
	for n := range exchanges {
		_, err := d.Append(t.Context(), storedriver.Append{
			Write: storedriver.Write{
				Access: storedriver.Access{Session: "s", Fence: first + int64(n)}, N: 1, Op: fmt.Sprintf("%032d", n)},
			Content: storedriver.Content{Messages: [][]byte{text, text}},
		})
		must(t, err)
	}
	return store, d
}

// calls are those that read a history. The query matches nothing.
func calls(t *testing.T, store *sessionstore.Store[string, string]) map[string]func() error {
	return map[string]func() error{
		"Search": func() error { _, err := store.Search(t.Context(), "needle", 5); return err },
		"Load":   func() error { _, err := store.Load(t.Context(), "needle"); return err },
		"Forward": func() error {
			for _, err := range store.Forward(t.Context(), lockedmemory.Place{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// A history of 20,000 exchanges is read in at most 16 round trips.
func TestStore_longHistory_atMost14RoundTrips(t *testing.T) {
	store, d := filled(t, 20_000, 100, &sessionstore.Options{Window: 20, SkipBroken: true,
		Logger: slog.New(slog.DiscardHandler)})
	for name, call := range calls(t, store) {
		d.reads = 0
		if must(t, call()); d.reads > 14 {
			t.Errorf("%s: %d round trips, want at most 14", name, d.reads)
		}
	}
	d.reads = 0
	if history, err := store.Load(t.Context(), ""); err != nil || len(history) != 40 || d.reads > 2 {
		t.Errorf("Load of a window: %d messages, %v, in %d round trips", len(history), err, d.reads)
	}
	d.reads, d.broken = 0, true
	if _, err := store.Load(t.Context(), ""); err != nil || d.reads > 14 {
		t.Errorf("Load of a window without an entry that can be read: %v, in %d round trips, want at most 14", err, d.reads)
	}
}

// Each broken entry has a line, under the context of the call.
func TestStore_brokenEntries_linesHaveTheContext(t *testing.T) {
	log := &lines{Handler: slog.DiscardHandler}
	store, d := filled(t, 100, 10, &sessionstore.Options{SkipBroken: true, Logger: slog.New(log)})
	d.broken = true
	ctx := context.WithValue(t.Context(), linesKey{}, true)
	_, err := store.Load(ctx, "")
	must(t, err)
	if log.n != 100 {
		t.Errorf("%d lines", log.n)
	}
}

// lines counts the lines under a context with linesKey.
type lines struct {
	slog.Handler
	n int
}

type linesKey struct{}

func (*lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(ctx context.Context, _ slog.Record) error {
	if ctx.Value(linesKey{}) != nil {
		l.n++
	}
	return nil
}

// A session with pinned exchanges costs one read more, and no other session does.
func TestLoad_pinned_oneReadMore(t *testing.T) {
	store, d := filled(t, 5_000, 100, &sessionstore.Options{Window: 10})
	loads := func(messages, reads int) {
		t.Helper()
		d.reads = 0
		if found, err := store.Load(t.Context(), ""); err != nil || len(found) != messages || d.reads != reads {
			t.Errorf("%d messages, %v, in %d reads; want %d, in %d", len(found), err, d.reads, messages, reads)
		}
	}
	loads(20, 1)
	page, err := d.Read(t.Context(), storedriver.Read{Access: storedriver.Access{Session: "s"}, Limit: 1})
	must(t, err)
	first := page.Entries[0]
	first.Pinned = true
	v, err := d.Replace(t.Context(), storedriver.Replace{From: first.Place, To: first.Place, New: []storedriver.Entry{first},
		Write: storedriver.Write{Access: storedriver.Access{Session: "s", Fence: time.Now().UnixMicro(), FirstAccess: true}, N: 1, Op: "op"}})
	if err != nil || v.Outcome != storedriver.Done {
		t.Fatal(v, err)
	}
	loads(22, 2)
}

// Also with large exchanges, an answer has at most 16 MiB.
func TestStore_largeExchanges_atMost16MiB(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	store, d := filled(t, 40, 1<<20, &sessionstore.Options{SkipBroken: true, Logger: quiet})
	for _, d.broken = range []bool{false, true} {
		for name, call := range calls(t, store) {
			d.largest = 0
			if must(t, call()); d.largest > 16<<20 {
				t.Errorf("%s, broken %t: an answer has %d bytes", name, d.broken, d.largest)
			}
		}
	}
}
