package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// isUnder checks that the exchange of a name is stored under an ID.
func (i *instance) isUnder(ctx context.Context, id string, name any) {
	i.Helper()
	e, known, err := i.memory.Answered(ctx, id)
	if err != nil || !known || e.ID != id || e.Place.N == 0 || !slices.Equal(e.Messages, exchange(name).Messages) {
		i.Errorf("under %s: %+v, %t, %v; want %v", id, e, known, err, name)
	}
}

func (i *instance) isUnknown(id string) {
	i.Helper()
	if e, known, err := i.memory.Answered(i.Context(), id); err != nil || known || len(e.Messages) > 0 {
		i.Errorf("under %s: %+v, %t, %v; want nothing", id, e, known, err)
	}
}

// isGoneUnder checks that an ID is known, and its exchange is no longer there.
func (i *instance) isGoneUnder(id string) {
	i.Helper()
	e, known, err := i.memory.Answered(i.Context(), id)
	if !errors.Is(err, lockedmemory.ErrAnswerGone) || !known || len(e.Messages) > 0 {
		i.Errorf("under %s: %+v, %t, %v; want ErrAnswerGone", id, e, known, err)
	}
}

// sentTwice is a driver whose client sends the next Append again, after another call.
type sentTwice struct {
	storedriver.Driver
	between func()
}

func (d *sentTwice) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	v, err := d.Driver.Append(ctx, a)
	if between := d.between; between != nil && err == nil {
		d.between = nil
		between()
		v, err = d.Driver.Append(ctx, a)
		v.Replayed = true
	}
	return v, err
}

// Between two copies of a SaveOnce, the session is deleted, and the ID has other messages. The outcome is
// unknown: the first copy was stored. The next call meets the conflict.
func conflictBetweenCopies(h *harness) {
	d := &sentTwice{}
	a := h.instance(nil, func(inner storedriver.Driver) storedriver.Driver {
		d.Driver = inner
		return d
	})
	b := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		d.between = func() {
			b.has("x")
			if err := errors.Join(b.store.Delete(ctx), b.store.SaveOnce(ctx, "id", question("y"), answer("y"))); err != nil {
				h.Error(err)
			}
		}
		for _, want := range []error{distlock.ErrOutcomeUnknown, sessionstore.ErrIDConflict} {
			err := a.saveOnce(ctx, "id", "x")
			if !errors.Is(err, want) || want != sessionstore.ErrIDConflict && errors.Is(err, sessionstore.ErrIDConflict) {
				h.Errorf("SaveOnce: %v, want %v", err, want)
			}
		}
	})
	a.has("y")
}

// An exchange is stored once under its ID: in a turn and outside, by another instance, after other IDs, after
// Clear, and after trimming. Other messages under the ID are a conflict.
func storedOnce(h *harness) {
	opts := &options{Retention: sessionstore.Retention{MaxExchanges: 3}}
	a, b := h.instance(opts, nil), h.instance(opts, nil)
	again := func(when string) {
		h.Helper()
		for _, i := range []*instance{a, b} {
			i.mustSaveOnce(h.Context(), "one", 1)
			i.turn(func(ctx context.Context) {
				for range 2 {
					i.mustSaveOnce(ctx, "one", 1)
				}
				if err := i.saveOnce(ctx, "one", "other"); !errors.Is(err, sessionstore.ErrIDConflict) {
					h.Errorf("%s, other messages in a turn: %v", when, err)
				}
			})
			if err := i.saveOnce(h.Context(), "one", "other"); !errors.Is(err, sessionstore.ErrIDConflict) {
				h.Errorf("%s, other messages outside a turn: %v", when, err)
			}
		}
	}
	long := strings.Repeat("é", 256)
	a.mustSaveOnce(h.Context(), "one", 1)
	again("at once")
	a.has(1)
	b.turn(func(ctx context.Context) {
		for range 2 {
			b.mustSaveOnce(ctx, "two", 2)
		}
	})
	a.mustSaveOnce(h.Context(), long, 3)
	again("after others")
	b.mustSaveOnce(h.Context(), long, 3)
	b.has(1, 2, 3)
	for n, e := range a.all(h.Context()) {
		if want := []string{"one", "two", long}[n]; e.ID != want {
			h.Errorf("the ID of %s is %q, want %q", e.Input().Text, e.ID, want)
		}
	}
	a.mustSave(h.Context(), 4, 5, 6, 7, 8, 9)
	again("after trimming")
	b.has(7, 8, 9)
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	again("after Clear")
	b.has()
	// Messages that only together are the same are others.
	input, output := Message{"user", "ab"}, Message{"assistant", "c"}
	if err := a.memory.SaveOnce(h.Context(), "split", input, output); err != nil {
		h.Error(err)
	}
	if err := a.memory.SaveOnce(h.Context(), "split", output, input); !errors.Is(err, sessionstore.ErrIDConflict) {
		h.Errorf("input and output exchanged: %v", err)
	}
}

// A copy of a write is known, also at another place, and after a Clear. A Save that has no ID is not.
func copiesOfIDs(h *harness) {
	a := h.instance(nil, nil)
	var n int64
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		save := func(id, name string, want storedriver.Outcome) {
			h.Helper()
			n++
			w := a.write(lease, n)
			w.FirstAccess = n == 1
			v, err := a.driver.Append(ctx, storedriver.Append{Write: w, Content: withID(content(name), id)})
			if err != nil || v.Outcome != want {
				h.Errorf("%s under %s: %+v, %v; want %d", name, id, v, err, want)
			}
		}
		save("id", "one", storedriver.Done)
		save("id", "one", storedriver.Known)
		save("id", "two", storedriver.Conflict)
		save("other", "one", storedriver.Done)
		a.has("one", "one")
		n++
		if v, err := a.driver.Clear(ctx, storedriver.Clear{Write: a.write(lease, n)}); err != nil || v.Outcome != storedriver.Done {
			h.Errorf("Clear: %+v, %v", v, err)
		}
		save("id", "one", storedriver.Known)
		save("other", "two", storedriver.Conflict)
		save("third", "two", storedriver.Done)
	})
	a.has("two")
}

// A Read of an ID finds its exchange and no other, with a lease and without. A refused write is not known.
func readByID(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, "plain")
		a.mustSaveOnce(ctx, "id", 1)
		a.mustSaveOnce(ctx, "id/2", 2)
	})
	b.mustSaveOnce(h.Context(), "other", 1)
	for _, i := range []*instance{a, b} {
		i.isUnder(h.Context(), "id", 1)
		i.isUnder(h.Context(), "id/2", 2)
		i.isUnder(h.Context(), "other", 1)
		i.isUnknown("never")
		i.turn(func(ctx context.Context) { i.isUnder(ctx, "id", 1) })
	}
	ctx, _ := a.stale(nil)
	b.mustSave(h.Context(), "later")
	if err := a.store.SaveOnce(ctx, "refused", question(1), answer(1)); err == nil {
		h.Error("a stale SaveOnce was stored")
	}
	a.isUnknown("refused")
}

// IDs outlive an expired session.
func idsAfterExpiry(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{IdleTTL: 3 * time.Second}}, nil)
	a.mustSaveOnce(h.Context(), "id", 1)
	a.awaitEmpty()
	a.isGoneUnder("id")
	a.mustSaveOnce(h.Context(), "id", 1)
	a.has()
}

// An ID is known for RememberIDs, and not for longer, even if the session still has its exchange. Another
// exchange is then stored under it, and it is known from then on.
func idsForgotten(h *harness) {
	const remember = time.Second
	a := h.instance(&options{Retention: sessionstore.Retention{RememberIDs: remember}}, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		save := storedriver.Append{Write: a.write(lease, 1), Content: withID(content("old"), "id")}
		known := func() bool {
			_, known, err := a.memory.Answered(h.Context(), "id")
			if err != nil {
				h.Fatal(err)
			}
			return known
		}
		for range 2 { // the second is a copy whose packet is late
			sent := time.Now()
			if v, err := a.driver.Append(ctx, save); err != nil || v.Outcome != storedriver.Done {
				h.Errorf("%+v, %v", v, err)
			}
			stored := time.Now()
			time.Sleep(time.Until(sent.Add(remember - 100*time.Millisecond)))
			if isKnown, took := known(), time.Since(sent); !isKnown && took < remember-2*time.Millisecond {
				h.Errorf("after %s, the ID is not known", took)
			}
			time.Sleep(time.Until(stored.Add(remember + 2*time.Millisecond)))
			if known() {
				h.Errorf("after %s, the ID is known", time.Since(stored))
			}
		}
	})
	a.mustSaveOnce(h.Context(), "id", "new")
	a.isUnder(h.Context(), "id", "new")
	a.has("old", "new")
}

// A Read of an ID under a lease shows its token first, and a stale one is refused.
func readsByIDShowToken(h *harness) {
	a := h.instance(nil, nil)
	a.mustSaveOnce(h.Context(), "id", 1)
	old, fence := a.stale(nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		access := a.write(lease, 1).Access
		read := storedriver.Read{Access: access, ID: "id", Limit: 1}
		page, err := a.driver.Read(ctx, read)
		if err != nil || page.Outcome != storedriver.Done || !page.Known || len(page.Entries) != 1 {
			h.Errorf("%+v, %v", page, err)
		}
		a.refused("Save", a.store.Save(old, question("stale"), answer("stale")), fence, lease.Fence())
		read.Fence = fence
		if page, err := a.driver.Read(ctx, read); err != nil || page.Outcome != storedriver.Stale || len(page.Entries) > 0 {
			h.Errorf("stale: %+v, %v", page, err)
		}
	})
}

func withID(c storedriver.Content, id string) storedriver.Content {
	sum := sha256.Sum256(bytes.Join(c.Messages, nil))
	c.IDs, c.Digest = []string{id}, [16]byte(sum[:])
	return c
}
