package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// listed are the options of the sessions that the tests list.
var listed = &options{Retention: sessionstore.Retention{Namespace: "listed"}}

// named makes an instance for another session, which has a name of its own.
func (h *harness) named(name string, opts *options) *instance {
	h.Helper()
	other := *h
	other.session += name
	return other.instance(opts, nil)
}

// sessions returns the names that a store yields, of the sessions of this test.
func (i *instance) sessions() (names []string) {
	i.Helper()
	for name, err := range i.store.Sessions(i.Context()) {
		if err != nil {
			i.Fatalf("after %d sessions: %v", len(names), err)
		}
		if strings.HasPrefix(name, i.session) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Each session with an exchange is listed, whatever its name. Others are not: those of another namespace,
// and those that were only loaded, cleared, emptied or deleted.
func sessionsListed(h *harness) {
	a := h.instance(listed, nil)
	var want []string
	for _, odd := range []string{
		"", "a", "b:c", "{d}", "e}", "*", "?f", "[g]", "h%7D", "%41", "ä", "' \\ \"", "}:log", strings.Repeat("k", 900),
	} {
		i := h.named(odd, listed)
		i.mustSave(h.Context(), 1)
		want = append(want, i.session)
	}
	slices.Sort(want)
	loaded, cleared := h.named("loaded", listed), h.named("cleared", listed)
	emptied, deleted := h.named("emptied", listed), h.named("deleted", listed)
	loaded.turn(loaded.mustLoad)
	for _, i := range []*instance{cleared, emptied, deleted} {
		i.mustSave(h.Context(), 1)
	}
	if got := a.sessions(); len(got) != len(want)+3 {
		h.Errorf("%d sessions have an exchange, and %q are listed", len(want)+3, got)
	}
	if err := errors.Join(cleared.memory.Clear(h.Context()), deleted.memory.Delete(h.Context())); err != nil {
		h.Fatal(err)
	}
	emptied.mustReplace(0, 0)
	h.named("elsewhere", nil).mustSave(h.Context(), 1)
	if got := a.sessions(); !slices.Equal(got, want) {
		h.Errorf("the sessions are\n%q, want\n%q", got, want)
	}
	for range a.store.Sessions(h.Context()) {
		break
	}
}

// counting counts the pages of sessions, and calls a function before each.
type counting struct {
	storedriver.Driver
	pages  int
	before func()
}

func (c *counting) Sessions(ctx context.Context, after string) ([]string, string, error) {
	c.pages++
	c.before()
	return c.Driver.Sessions(ctx, after)
}

// With a ctx that ends before or during a page, Sessions ends with its error.
func sessionsOfEndedContext(h *harness) {
	for pages := range 2 {
		ctx, cancel := context.WithCancel(h.Context())
		if pages == 0 {
			cancel()
		}
		count := &counting{before: cancel}
		a := h.instance(listed, func(d storedriver.Driver) storedriver.Driver { count.Driver = d; return count })
		a.mustSave(h.Context(), 1)
		var last error
		for _, err := range a.store.Sessions(ctx) {
			last = err
		}
		if count.pages != pages || (pages == 0 || last != nil) && !errors.Is(last, context.Canceled) {
			h.Errorf("%d pages, %v", count.pages, last)
		}
		if _, err := a.store.Ping(ctx); !errors.Is(err, context.Canceled) {
			h.Errorf("Ping: %v", err)
		}
		cancel()
	}
	if _, err := h.instance(listed, nil).store.Ping(h.Context()); err != nil {
		h.Errorf("Ping: %v", err)
	}
}
