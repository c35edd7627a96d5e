package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// of is an instance of another session.
func (h *harness) of(session string, opts *options, wrap func(storedriver.Driver) storedriver.Driver) *instance {
	h.Helper()
	other := *h
	other.session = session
	return other.instance(opts, wrap)
}

// A fork has the turns up to a place, whole, with their places and pins, and without IDs. Both sessions go
// on without each other.
func forked(h *harness) {
	a, b := h.instance(nil, nil), h.of(h.session+"-b", nil, nil)
	a.mustSaveOnce(h.Context(), "id", 1)
	a.mustSave(h.Context(), 2, 3)
	a.mustReplace(1, 1, pin("s"), exchange("2"))
	for range 3 { // its sub-place is far above those around it
		a.mustReplace(2, 2, exchange("2"))
	}
	a.turn(func(ctx context.Context) { a.mustSave(ctx, 4, 5, 6) })
	a.mustSave(h.Context(), 7)
	source := a.all(h.Context())
	if err := a.memory.Fork(h.Context(), b.session, source[5].Place); err != nil { // in the turn of 4 to 6
		h.Fatal(err)
	}
	b.has("1", "s", "2", "3", "4", "5", "6")
	copied := b.all(h.Context())
	for n, e := range copied {
		if e.Place != source[n].Place || e.Pinned != source[n].Pinned || e.ID != "" {
			h.Errorf("%+v is copied as %+v", source[n], e)
		}
	}
	if _, known, err := b.store.Answered(h.Context(), "id"); known || err != nil {
		h.Errorf("an ID is copied: %v", err)
	}
	last, err := b.store.Last(h.Context(), 3)
	if names := b.namesOf(last); err != nil || !slices.Equal(names, []any{"4", "5", "6"}) {
		h.Errorf("the last turn is %v, %v", names, err)
	}
	b.mustSaveOnce(h.Context(), "id", 8)
	b.mustReplace(1, 3, pin("s"), exchange("2b"), exchange("2c"), exchange("3"))
	b.has("1", "s", "2b", "2c", "3", "4", "5", "6", 8)
	for _, e := range b.all(h.Context())[2:4] {
		if e.Place.Sub <= copied[2].Place.Sub {
			h.Errorf("the place %s was given before", e.Place)
		}
	}
	a.has("1", "s", "2", "3", "4", "5", "6", "7")

	c := h.of(h.session+"-c", nil, nil)
	b.turn(func(ctx context.Context) { // all of it, from inside a turn, into a session that was cleared
		c.mustSave(h.Context(), "old")
		if err := c.memory.Clear(h.Context()); err != nil {
			h.Fatal(err)
		}
		b.mustSave(ctx, 9)
		if err := b.memory.Fork(ctx, c.session, lockedmemory.Place{}); err != nil {
			h.Fatal(err)
		}
	})
	c.has("1", "s", "2b", "2c", "3", "4", "5", "6", 8, 9)
	c.mustSave(h.Context(), 10)
	c.has("1", "s", "2b", "2c", "3", "4", "5", "6", 8, 9, 10)
	if err := c.memory.Delete(h.Context()); err != nil {
		h.Fatal(err)
	}
	c.has()
	b.has("1", "s", "2b", "2c", "3", "4", "5", "6", 8, 9)
}

// A fork into a session with an exchange, of no history, or of a place that is not there, changes nothing.
func forkRefused(h *harness) {
	a, b := h.instance(nil, nil), h.of(h.session+"-b", nil, nil)
	if err := a.memory.Fork(h.Context(), b.session, lockedmemory.Place{}); !errors.Is(err, sessionstore.ErrRange) {
		h.Errorf("of an empty session: %v", err)
	}
	a.mustSave(h.Context(), 1, 2)
	place := a.all(h.Context())[1].Place
	for name, upTo := range map[string]lockedmemory.Place{
		"another token": {Fence: place.Fence + 1, N: 1}, "another number": {Fence: place.Fence, N: place.N + 1},
		"a marker": {Fence: place.Fence}, "below all": {Fence: 1, N: 1},
	} {
		if err := a.memory.Fork(h.Context(), b.session, upTo); !errors.Is(err, sessionstore.ErrRange) {
			h.Errorf("%s: %v", name, err)
		}
	}
	b.has()
	b.mustSave(h.Context(), "b")
	for name, to := range map[string]string{"into a session": b.session, "into itself": a.session} {
		if err := a.memory.Fork(h.Context(), to, place); !errors.Is(err, sessionstore.ErrNotEmpty) {
			h.Errorf("%s: %v", name, err)
		}
	}
	b.turn(func(ctx context.Context) {
		if err := a.store.Fork(ctx, b.session+"-other", place); !errors.Is(err, distlock.ErrNotHeld) {
			h.Errorf("under the lease of another session: %v", err)
		}
	})
	if err := a.store.Fork(h.Context(), b.session, place); !errors.Is(err, distlock.ErrNotHeld) {
		h.Errorf("without a lease: %v", err)
	}
	b.has("b")
	a.has(1, 2)

	c := h.of(h.session+"-c", nil, nil)
	ctx, _ := c.stale(nil)
	c.turn(c.mustLoad)
	if err := a.store.Fork(ctx, c.session, place); !errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrNotHeld) {
		h.Errorf("under a lease that is over: %v", err)
	}
	c.has()
}

// The new session has higher tokens than the copied exchanges, also where the lock of the copied session
// was ahead.
func forkedTokensRise(h *harness) {
	a, b := h.instance(nil, nil), h.of(h.session+"-b", nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		if err := fencing.RaiseToken(ctx, lease, lease.Fence()+3_600_000_000); err != nil {
			h.Fatal(err)
		}
		a.mustSave(ctx, 1)
	})
	if err := a.memory.Fork(h.Context(), b.session, lockedmemory.Place{}); err != nil {
		h.Fatal(err)
	}
	b.mustSave(h.Context(), 2)
	b.has(1, 2)
}

// A long fork is there as a whole or not at all, whatever becomes of its process. Late copies change
// nothing.
func forkedAtOnce(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		for n := range 120 {
			a.saveBytes(ctx, 2000, fmt.Sprint(n))
		}
	})
	b := h.of(h.session+"-b", nil, nil)
	var sent storedriver.Fork
	other := h.instance(nil, func(d storedriver.Driver) storedriver.Driver {
		return &forking{d, func(f storedriver.Fork) {
			sent = f
			b.has()
		}}
	})
	if err := other.memory.Fork(h.Context(), b.session, lockedmemory.Place{}); err != nil {
		h.Fatal(err)
	}
	if got := b.stored(); len(got) != 120 {
		h.Fatalf("%d exchanges are copied", len(got))
	}
	v, err := b.driver.Fork(h.Context(), sent)
	if err != nil || v.Outcome != storedriver.Done {
		h.Errorf("a copy of the Fork: %+v, %v", v, err)
	}
	b.mustSave(h.Context(), "more")
	if v, err = b.driver.Fork(h.Context(), sent); err != nil || v.Outcome != storedriver.Stale {
		h.Errorf("a late copy of the Fork: %+v, %v", v, err)
	}
	if got := b.stored(); len(got) != 121 || strings.Join(b.texts(got[119:]), " ") != "119 more" {
		h.Errorf("%d exchanges", len(got))
	}
}

func (i *instance) texts(names []any) (texts []string) {
	for _, n := range names {
		texts = append(texts, fmt.Sprint(n))
	}
	return texts
}

// forking is a driver that shows each Fork before it sends it.
type forking struct {
	storedriver.Driver
	before func(storedriver.Fork)
}

func (d *forking) Fork(ctx context.Context, f storedriver.Fork) (storedriver.Verdict, error) {
	d.before(f)
	return d.Driver.Fork(ctx, f)
}

// saveBytes saves exchanges whose answers have a size.
func (i *instance) saveBytes(ctx context.Context, size int, names ...any) {
	i.Helper()
	for _, n := range names {
		if err := i.memory.Save(ctx, question(n), Message{"assistant", strings.Repeat("x", size)}); err != nil {
			i.Fatalf("Save of %v: %v", n, err)
		}
	}
}

// Between two pages of a read, the session is cleared or expires, and a session is forked into it that has
// places below and above those that were read. The read does not mix both, and no place is given out twice.
func forkedBetweenPages(h *harness) {
	for n, c := range []struct {
		replaces int
		idle     time.Duration
	}{{}, {replaces: 1}, {replaces: 2}, {idle: 3 * time.Second}} {
		session, opts := fmt.Sprint(h.session, "-", n), &options{Retention: sessionstore.Retention{IdleTTL: c.idle}}
		a, other := h.of(session, opts, nil), h.of(session+"-other", opts, nil)
		fork := func(i *instance, to string) {
			if err := i.memory.Fork(h.Context(), to, lockedmemory.Place{}); err != nil {
				h.Error(err)
			}
		}
		a.mustSave(h.Context(), 1)
		fork(a, other.session)
		a.mustSave(h.Context(), 2, 3)
		other.mustSave(h.Context(), "above")
		for range c.replaces {
			a.mustReplace(0, 0, exchange("1"))
		}
		replaced := a.all(h.Context())[0].Place
		h.of(session, opts, func(d storedriver.Driver) storedriver.Driver {
			return &small{Driver: d, limit: 2, before: func(page int) {
				if page != 1 {
					return
				}
				if c.idle == 0 {
					if err := a.memory.Clear(h.Context()); err != nil {
						h.Error(err)
					}
				}
				for len(a.stored()) > 0 { // the other one does not expire
					other.turn(other.mustLoad)
				}
				fork(other, session)
			}}
		}).has("1", "above")
		a.mustReplace(0, 0, exchange("new"))
		if at := a.all(h.Context())[0].Place; at.Compare(replaced) <= 0 {
			h.Errorf("case %d: the place %s is given out again, or one below it: %s", n, replaced, at)
		}
	}
}
