package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// under makes a Named Read without a lease. It returns how many numbers are known under the ID, and the
// numbers that the session still has.
func (i *instance) under(id string) (stored int, there []int) {
	i.Helper()
	page, err := i.driver.Read(i.Context(), driver.Read{Session: i.session, ID: id, Named: true, Limit: 100})
	if err != nil {
		i.Fatalf("a Named Read of %s: %v", id, err)
	}
	for _, e := range page.Entries {
		if e.Err != nil || e.ID != id || len(e.Messages) != 2 {
			i.Errorf("under %s: %+v", id, e)
		}
		there = append(there, e.Number)
	}
	return page.Stored, there
}

// isUnder checks the result of under.
func (i *instance) isUnder(id string, stored int, there ...int) {
	i.Helper()
	if n, numbers := i.under(id); n != stored || !slices.Equal(numbers, there) {
		i.Errorf("%d numbers are stored under %s, and the session has %v; want %d and %v", n, id, numbers, stored, there)
	}
}

// saveTurn stores exchanges in a turn with an ID.
func (i *instance) saveTurn(id string, names ...any) {
	i.Helper()
	err := i.memory.Turn(lockedmemory.WithTurnID(i.Context(), id), func(ctx context.Context) error {
		i.mustSave(ctx, names...)
		return nil
	})
	if err != nil {
		i.Fatalf("Turn: %v", err)
	}
}

// A Named Read finds all exchanges of a turn ID and its repetitions, and no others. Refused and repeated
// Saves change nothing.
func namedReads(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.isUnder("id", 0)
	a.saveTurn("id", 1, 2)
	a.isUnder("other", 0)
	b.mustSave(h.Context(), "plain")
	b.mustSave(lockedmemory.WithTurnID(h.Context(), "other"), "other")
	b.saveTurn("id", 3)
	b.mustSave(h.Context(), "plain")
	if err := b.save(lockedmemory.WithTurnID(h.Context(), "id"), "conflict"); err == nil {
		h.Error("other messages were stored")
	}
	b.mustSave(lockedmemory.WithTurnID(h.Context(), "id"), 1) // it is known
	for _, i := range []*instance{a, b} {
		i.isUnder("id", 3, 1, 2, 3)
		i.isUnder("other", 1, 1)
		i.isUnder("never", 0)
	}
	ctx, _ := a.stale(nil)
	b.mustSave(h.Context(), "later")
	if err := a.store.Save(lockedmemory.WithTurnID(ctx, "refused"), question(1), answer(1)); err == nil {
		h.Error("a stale Save was stored")
	}
	a.isUnder("refused", 0)
}

// The pages of a Named Read have each exchange once, in order.
func namedReadsInPages(h *harness) {
	a := h.instance(nil, nil)
	a.saveTurn("id", 1, 2, 3)
	a.mustSave(h.Context(), "plain")
	a.saveTurn("id", 4, 5)
	for limit := 1; limit <= 6; limit++ {
		read := driver.Read{Session: h.session, ID: "id", Named: true, Limit: limit}
		var numbers []int
		for range 10 {
			page, err := a.driver.Read(h.Context(), read)
			if err != nil || page.Stored != 5 || len(page.Entries) > limit {
				h.Fatalf("%+v, %v", page, err)
			}
			for _, e := range page.Entries {
				numbers = append(numbers, e.Number)
			}
			if read.From = page.Last; read.From == (lockedmemory.Place{}) {
				break
			}
		}
		if !slices.Equal(numbers, []int{1, 2, 3, 4, 5}) {
			h.Errorf("in pages of %d: %v", limit, numbers)
		}
	}
}

// A Named Read leaves out exchanges that were trimmed or cleared, and skipped numbers.
func namedReadsAfterTrimAndClear(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 3}}, nil)
	a.saveTurn("id", 1, 2)
	a.saveTurn("id", 3)
	a.isUnder("id", 3, 1, 2, 3)
	a.mustSave(h.Context(), "plain", "plain") // the first turn is trimmed
	a.isUnder("id", 3, 3)
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	a.isUnder("id", 3)
	a.saveTurn("id", 4)
	a.isUnder("id", 4, 4)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		c := withID(content("third"), "skipped", 3)
		for range 2 { // a copy of it is known
			v, err := a.driver.Append(ctx, driver.Append{Write: a.write(lease, 1), Content: c})
			if err != nil || v.Outcome > driver.Known {
				h.Errorf("%+v, %v", v, err)
			}
		}
	})
	a.isUnder("skipped", 3, 3)
}

// Turn IDs outlive an expired session.
func namedReadsAfterExpiry(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{IdleTTL: 3 * time.Second}}, nil)
	a.saveTurn("id", 1, 2)
	a.awaitEmpty()
	a.isUnder("id", 2)
}

// An expired ID is not known, even if the session still has its exchange. A later Save under the ID is
// then its only exchange.
func namedReadsOfForgottenID(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{RememberTurns: time.Second}}, nil)
	forgotten := func() {
		h.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for n := 1; n > 0; n, _ = a.under("id") {
			if time.Now().After(deadline) {
				h.Fatal("the ID is still known")
			}
			time.Sleep(50 * time.Millisecond)
		}
		a.isUnder("id", 0)
	}
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		save := driver.Append{Write: a.write(lease, 1), Content: withID(content("old"), "id", 1)}
		for range 2 { // the second is a copy whose packet is late
			if v, err := a.driver.Append(ctx, save); err != nil || v.Outcome != driver.Done {
				h.Errorf("%+v, %v", v, err)
			}
			a.isUnder("id", 1, 1)
			forgotten()
		}
	})
	a.saveTurn("id", "new")
	a.isUnder("id", 1, 1)
	a.has("old", "new")
}

// A Named Read under a lease shows its token first, and a stale one is refused.
func namedReadsShowToken(h *harness) {
	a := h.instance(nil, nil)
	a.saveTurn("id", 1)
	old, fence := a.stale(nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		access := a.write(lease, 1).Access
		read := driver.Read{Session: h.session, Access: &access, ID: "id", Named: true, Limit: 10}
		page, err := a.driver.Read(ctx, read)
		if err != nil || page.Outcome != driver.Done || page.Stored != 1 || len(page.Entries) != 1 {
			h.Errorf("%+v, %v", page, err)
		}
		a.refused("Save", a.store.Save(old, question("stale"), answer("stale")), fence, lease.Fence())
		access.Fence = fence
		if page, err := a.driver.Read(ctx, read); err != nil || page.Outcome != driver.Stale || len(page.Entries) > 0 {
			h.Errorf("stale: %+v, %v", page, err)
		}
	})
}

// A Named Read never finds a part of a turn that is cleared at the same time.
func namedReadsAreOneMoment(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	var all sync.WaitGroup
	defer all.Wait()
	for n := range 20 {
		id := fmt.Sprint("id-", n)
		a.saveTurn(id, 1, 2, 3, 4, 5, 6, 7, 8)
		all.Go(func() {
			if err := a.memory.Clear(h.Context()); err != nil {
				h.Error(err)
			}
		})
		for there := 8; there > 0; {
			stored, numbers := b.under(id)
			if there = len(numbers); stored != 8 || there != 0 && there != 8 {
				h.Fatalf("%d of %d exchanges", there, stored)
			}
		}
		all.Wait()
	}
}
