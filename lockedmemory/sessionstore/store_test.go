package sessionstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// After a holder has loaded, another lock service grants a second holder a higher token. Then the first
// holder gets a token above that. From its next Load on, the store refuses the second holder.
func TestStore_S2_raisedToken_shownAgain(t *testing.T) {
	d, _ := asked()
	d.read = func(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
		if !r.FirstAccess { // it shows the token of a Read only if it has to
			r.Access = storedriver.Access{Session: r.Session}
		}
		return d.Driver.Read(ctx, r)
	}
	ours, _, ourLocker := over(t, d, &d.Driver, nil)
	theirs, _, theirLocker := over(t, d, nil, nil)
	must(t, ours.Turn(t.Context(), func(our context.Context) error {
		ourLease, _ := ourLocker.FromContext(our, "s")
		_, err := ours.Load(our, "")
		must(t, err)
		return theirs.Turn(t.Context(), func(their context.Context) error {
			theirLease, _ := theirLocker.FromContext(their, "s")
			must(t, fencing.RaiseToken(their, theirLease, ourLease.Fence()))
			must(t, theirs.Save(their, "q", "a"))
			must(t, fencing.RaiseToken(our, ourLease, theirLease.Fence()))
			loaded, err := ours.Load(our, "")
			must(t, err)
			if !slices.Equal(loaded, []string{"q", "a"}) {
				t.Errorf("loaded %q", loaded)
			}
			stale := new(sessionstore.StaleError)
			if err := theirs.Save(their, "late", "late"); !errors.As(err, &stale) || stale.MarkToken != ourLease.Fence() {
				t.Errorf("a Save under %d after a Load under %d: %v", theirLease.Fence(), ourLease.Fence(), err)
			}
			return nil
		})
	}))
}

// That an ID is known shows nothing of the token: the next access still has to.
func TestStore_S2_knownID_tokenIsShownNext(t *testing.T) {
	d, _ := asked()
	shows := false
	d.read = func(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
		shows = r.FirstAccess
		return d.Driver.Read(ctx, r)
	}
	memory, _, _ := over(t, d, &d.Driver, nil)
	must(t, memory.SaveOnce(t.Context(), "id", "q", "a"))
	must(t, memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, memory.SaveOnce(ctx, "id", "q", "a"))
		return second(memory.Load(ctx, ""))
	}))
	if !shows {
		t.Error("a Load after a known ID does not show its token")
	}
}

// What a driver has read, and knows to be gone by the time it has, is not shown.
func TestStore_O_olderThanOldest_notShown(t *testing.T) {
	d, _ := asked()
	d.read = func(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
		page, err := d.Driver.Read(ctx, r) // all but its last entry is history no more
		for _, e := range page.Entries {
			if e.Place.Compare(page.Oldest) > 0 {
				page.Oldest = e.Place
			}
		}
		return page, err
	}
	memory, store, _ := over(t, d, &d.Driver, nil)
	for n := range 3 {
		must(t, memory.Save(t.Context(), fmt.Sprint("q", n), fmt.Sprint("a", n)))
	}
	want := []string{"q2", "a2"}
	if got, err := memory.Load(t.Context(), ""); err != nil || !slices.Equal(got, want) {
		t.Errorf("Load: %q, %v", got, err)
	}
	var yielded []string
	for exchange, err := range store.Forward(t.Context(), lockedmemory.Place{}) {
		must(t, err)
		yielded = append(yielded, exchange.Input(), exchange.Output())
	}
	if !slices.Equal(yielded, want) {
		t.Errorf("Forward: %q", yielded)
	}
}

// paged is a driver with small pages, of which a store reads all that is kept. Before the second page, it
// calls a function.
type paged struct {
	storedriver.Driver
	limit  int
	before func()
}

func (d *paged) Retention() storedriver.Retention { return storedriver.Retention{} }

func (d *paged) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	if r.From != (lockedmemory.Place{}) && d.before != nil {
		before := d.before
		d.before = nil
		before()
	}
	r.Limit = min(r.Limit, d.limit)
	return d.Driver.Read(ctx, r)
}

// trimming makes a memory of so many exchanges.
func trimming(t *testing.T, most int) (*paged, *sessionstore.Store[string, string],
	*lockedmemory.LockedMemory[string, string]) {
	t.Helper()
	d, err := memstore.NewDriver(&storedriver.Retention{MaxExchanges: most})
	must(t, err)
	pages := &paged{Driver: d}
	memory, store, _ := over(t, pages, nil, nil)
	return pages, store, memory
}

// Between two pages, the first turn is trimmed, and the last one read is not.
func TestLoad_O_trimmedBetweenPages_oneMoment(t *testing.T) {
	pages, _, memory := trimming(t, 3)
	for _, text := range []string{"1", "2", "3"} {
		must(t, memory.Save(t.Context(), text, text))
	}
	pages.limit, pages.before = 2, func() {
		for _, text := range []string{"4", "5"} { // a Save trims before it adds
			must(t, memory.Save(t.Context(), text, text))
		}
	}
	if got, err := memory.Load(t.Context(), ""); err != nil || strings.Join(got, "") != "22334455" {
		t.Errorf("Load: %q, %v", got, err)
	}
}

// A Load that meets changes begins again, but not for ever.
func TestLoad_O_changedBetweenPages_beginsAgain(t *testing.T) {
	for changes, want := range map[int]error{3: nil, 4: sessionstore.ErrChanged} {
		pages, _, memory := trimming(t, 3)
		pages.limit = 1
		var change func()
		left := changes
		change = func() {
			must(t, memory.Clear(t.Context()))
			for _, text := range []string{"1", "2"} {
				must(t, memory.Save(t.Context(), text, text))
			}
			if left--; left > 0 {
				pages.before = change
			}
		}
		change()
		left, pages.before = changes, change
		if got, err := memory.Load(t.Context(), ""); !errors.Is(err, want) || err == nil && strings.Join(got, "") != "1122" {
			t.Errorf("Load during %d changes: %q, %v; want the error %v", changes, got, err, want)
		}
	}
}

// Between two pages, the turn that is being read is trimmed. Its rest does not follow.
func TestExchanges_O_trimmedBetweenPages_changed(t *testing.T) {
	pages, store, memory := trimming(t, 2)
	pages.limit = 1
	must(t, memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, memory.Save(ctx, "q", "a"))
		return memory.Save(ctx, "q", "a")
	}))
	var seen []error
	for _, err := range store.Forward(t.Context(), lockedmemory.Place{}) {
		if seen = append(seen, err); len(seen) == 1 {
			pages.before = func() {
				for range 3 {
					must(t, memory.Save(t.Context(), "new", "new"))
				}
			}
		}
	}
	if len(seen) != 2 || seen[0] != nil || !errors.Is(seen[1], sessionstore.ErrChanged) {
		t.Errorf("Forward: %v; want one exchange, and ErrChanged", seen)
	}
}

// A service that turns calls away for a moment, as while it fails over, is asked again.
func TestSave_C_temporaryRefusal_triesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Second)
		d := &scripted{write: func(_ context.Context, _ storedriver.Write, do effect) (storedriver.Verdict, error) {
			if time.Now().Before(until) {
				return storedriver.Verdict{}, fmt.Errorf("%w: not now", driver.ErrTemporary)
			}
			return do()
		}}
		memory := memoryOver(t, d, &d.Driver)
		if err := memory.Save(t.Context(), "q", "a"); err != nil {
			t.Errorf("Save: %v", err)
		}
		until = time.Now().Add(time.Hour)
		if err := memory.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrUnavailable) ||
			!errors.Is(err, driver.ErrTemporary) {
			t.Errorf("Save: %v", err)
		}
	})
}

// ending is a memory that ends the context of a write before it calls its store.
type ending struct {
	*sessionstore.Store[string, string]
}

func (h ending) Save(ctx context.Context, input, output string) error {
	return h.Store.Save(ended(ctx), input, output)
}

func (h ending) Clear(ctx context.Context) error { return h.Store.Clear(ended(ctx)) }

func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// A write whose context has ended on its way to the store is not made.
func TestStore_C_contextEndsOnTheWay_noWrite(t *testing.T) {
	d, calls := asked()
	_, store, locker := over(t, d, &d.Driver, nil)
	memory, err := lockedmemory.New(ending{store}, locker, lockedmemory.FixedKey("s"), nil)
	must(t, err)
	for name, err := range map[string]error{"Save": memory.Save(t.Context(), "q", "a"),
		"Clear": memory.Clear(t.Context())} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, locker.Close(t.Context())) // which waits for what goes on in the background
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// A turn that has ended may have read everything. A Save that it has left behind does not begin a
// new history, and fails with the error of the lease, also if the session never had an exchange.
func TestSave_O_endedLease_notHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, err := memstore.NewDriver(&storedriver.Retention{IdleTTL: time.Minute})
		must(t, err)
		memory, store, _ := over(t, sessions, nil, nil)
		var late context.Context
		refused := func(when string) {
			err := store.Save(late, "q", "a")
			if !errors.Is(err, distlock.ErrNotHeld) || errors.Is(err, sessionstore.ErrGone) {
				t.Errorf("Save %s: %v; want ErrNotHeld alone", when, err)
			}
		}
		must(t, memory.Turn(t.Context(), func(ctx context.Context) error {
			late = context.WithoutCancel(ctx)
			return nil
		}))
		refused("in an empty session")
		must(t, memory.Save(t.Context(), "q", "a"))
		time.Sleep(48 * time.Hour)
		refused("in an expired session")
	})
}

// listing is a driver with the given pages of sessions. The page after them fails.
type listing struct {
	storedriver.Driver
	pages [][]string
}

func (d *listing) Sessions(_ context.Context, after string) ([]string, string, error) {
	i := len(after)
	if i == len(d.pages) {
		return nil, "", errors.New("connection reset")
	}
	return d.pages[i], after + ".", nil
}

// Sessions goes on after an empty page, and ends with an error, or where the caller breaks.
func TestSessions_emptyPageAndError(t *testing.T) {
	d := &listing{pages: [][]string{{"a", "b"}, nil, {"c"}}}
	_, store, _ := over(t, d, &d.Driver, nil)
	var names []string
	var last error
	for name, err := range store.Sessions(t.Context()) {
		names, last = append(names, name), err
	}
	if !slices.Equal(names, []string{"a", "b", "c", ""}) || !errors.Is(last, distlock.ErrUnavailable) {
		t.Errorf("%q, %v", names, last)
	}
	for name := range store.Sessions(t.Context()) {
		if name == "b" {
			break
		}
	}
}
