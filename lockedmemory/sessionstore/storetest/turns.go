package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

func newOp() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return hex.EncodeToString(b[:])
}

// A turn ID is stored once: in a turn and outside, by another instance, after other IDs, after Clear,
// and after trimming. Other messages under it are a conflict.
func turnIDs(h *harness) {
	opts := &options{Retention: sessionstore.Retention{MaxExchanges: 3}}
	a, b := h.instance(opts, nil), h.instance(opts, nil)
	id := func(ctx context.Context, id string) context.Context { return lockedmemory.WithTurnID(ctx, id) }
	again := func(when string) {
		h.Helper()
		for _, i := range []*instance{a, b} {
			if err := i.save(id(h.Context(), "one"), 1); err != nil {
				h.Errorf("%s, outside a turn: %v", when, err)
			}
			i.turn(func(ctx context.Context) {
				if err := i.save(id(ctx, "one"), 1); err != nil {
					h.Errorf("%s, in a turn: %v", when, err)
				}
			})
			if err := i.save(id(h.Context(), "one"), "other"); !errors.Is(err, sessionstore.ErrTurnConflict) {
				h.Errorf("%s, other messages outside a turn: %v", when, err)
			}
			err := i.memory.Turn(h.Context(), func(ctx context.Context) error { return i.save(id(ctx, "one"), "other") })
			if !errors.Is(err, sessionstore.ErrTurnConflict) {
				h.Errorf("%s, other messages in a turn: %v", when, err)
			}
		}
	}
	a.mustSave(id(h.Context(), "one"), 1)
	again("at once")
	a.has(1)
	b.turn(func(ctx context.Context) {
		for range 2 {
			b.mustSave(id(ctx, "two"), 2)
		}
	})
	a.mustSave(id(h.Context(), strings.Repeat("é", 256)), 3)
	again("after others")
	b.mustSave(id(h.Context(), strings.Repeat("é", 256)), 3)
	b.has(1, 2, 3)
	for e := range b.store.Forward(h.Context(), lockedmemory.Place{}) {
		if want := []string{"one", "two", strings.Repeat("é", 256)}[e.Input().Text[1]-'1']; e.ID != want {
			h.Errorf("the turn ID of %s is %q, want %q", e.Input().Text, e.ID, want)
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
	if err := a.memory.Save(id(h.Context(), "split"), input, output); err != nil {
		h.Error(err)
	}
	if err := a.memory.Save(id(h.Context(), "split"), output, input); !errors.Is(err, sessionstore.ErrTurnConflict) {
		h.Errorf("input and output exchanged: %v", err)
	}
}

// The Saves of a turn with an ID are stored each, also equal ones. A repeated turn goes on after
// the last one, with a Load before its first Save or without.
func namedTurns(h *harness) {
	a, b := h.instance(nil, func(d driver.Driver) driver.Driver { return slow{d} }), h.instance(nil, nil)
	turn := func(i *instance, load bool, names ...any) {
		h.Helper()
		err := i.memory.Turn(lockedmemory.WithTurnID(h.Context(), "id"), func(ctx context.Context) error {
			if load {
				i.mustLoad(ctx)
			}
			for _, n := range names {
				if err := i.save(ctx, n); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			h.Errorf("Turn: %v", err)
		}
	}
	turn(a, true, 1, 1)
	turn(b, true, 1)
	turn(a, false, 2, 2)
	if err := a.memory.Turn(lockedmemory.WithTurnID(h.Context(), "id"), func(ctx context.Context) error {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := a.save(ctx, 3); err != nil {
					h.Errorf("Save at once with others: %v", err)
				}
			})
		}
		all.Wait()
		return nil
	}); err != nil {
		h.Errorf("Turn: %v", err)
	}
	a.has(1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3)
	n := 0
	for e, err := range b.store.Forward(h.Context(), lockedmemory.Place{}) {
		if n++; err != nil || e.ID != "id" || e.Number != n {
			h.Errorf("exchange %d: %+v, %v", n, e, err)
		}
	}
}

// slow is a driver whose Appends take long enough to overlap.
type slow struct{ driver.Driver }

func (d slow) Append(ctx context.Context, a driver.Append) (driver.Verdict, error) {
	time.Sleep(5 * time.Millisecond)
	return d.Driver.Append(ctx, a)
}

// lost is a driver that loses the answer of the next write, if next is set.
type lost struct {
	driver.Driver
	next bool
}

func (d *lost) Append(ctx context.Context, a driver.Append) (driver.Verdict, error) {
	return d.answer(d.Driver.Append(ctx, a))
}

func (d *lost) Replace(ctx context.Context, r driver.Replace) (driver.Verdict, error) {
	return d.answer(d.Driver.Replace(ctx, r))
}

func (d *lost) answer(v driver.Verdict, err error) (driver.Verdict, error) {
	if d.next {
		d.next = false
		return driver.Verdict{}, errors.New("no answer")
	}
	return v, err
}

// A Save whose answer is lost keeps its number: it is stored once if it is repeated, and other
// messages are a conflict.
func lostAnswers(h *harness) {
	d := &lost{}
	a := h.instance(nil, func(inner driver.Driver) driver.Driver {
		d.Driver = inner
		return d
	})
	if err := a.memory.Turn(lockedmemory.WithTurnID(h.Context(), "id"), func(ctx context.Context) error {
		a.mustSave(ctx, 1)
		d.next = true
		if err := a.save(ctx, 2); !errors.Is(err, distlock.ErrOutcomeUnknown) {
			h.Errorf("a Save whose answer is lost: %v", err)
		}
		if err := a.save(ctx, "other"); !errors.Is(err, sessionstore.ErrTurnConflict) {
			h.Errorf("other messages: %v", err)
		}
		a.mustSave(ctx, 2, 3)
		return nil
	}); err != nil {
		h.Errorf("Turn: %v", err)
	}
	a.has(1, 2, 3)
}

func turnIDsForgotten(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{RememberTurns: time.Second}}, nil)
	ctx := lockedmemory.WithTurnID(h.Context(), "id")
	start := time.Now()
	a.mustSave(ctx, 1)
	for deadline := start.Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := a.save(ctx, 2)
		if early := time.Since(start) < time.Second; err == nil && early {
			h.Errorf("the ID expired after %s, before its time", time.Since(start))
		}
		if err == nil {
			break
		}
		if !errors.Is(err, sessionstore.ErrTurnConflict) || time.Now().After(deadline) {
			h.Fatalf("after %s: %v", time.Since(start), err)
		}
	}
	a.has(1, 2)
}

// The exchanges of a turn ID are numbered. A number is stored once, whatever has become of its
// entry.
func numbers(h *harness) {
	a := h.instance(nil, nil)
	n := int64(0)
	var lease *distlock.Lease
	save := func(ctx context.Context, id string, number int, name string, want driver.Outcome) {
		h.Helper()
		n++
		w := a.write(lease, n)
		w.First = n == 1
		v, err := a.driver.Append(ctx, driver.Append{Write: w, Content: withID(content(name), id, number)})
		if err != nil || v.Outcome != want {
			h.Errorf("%s of number %d: %+v, %v; want %d", name, number, v, err, want)
		}
	}
	stored := func(ctx context.Context, id string, want int) {
		h.Helper()
		access := a.write(lease, 1).Access
		page, err := a.driver.Read(ctx, driver.Read{Session: h.session, Access: &access, Limit: 1, ID: id})
		if err != nil || page.Stored != want {
			h.Errorf("%d are stored, %v; want %d", page.Stored, err, want)
		}
	}
	a.turn(func(ctx context.Context) {
		lease, _ = lockedmemory.Lease(ctx)
		stored(ctx, "id", 0)
		save(ctx, "id", 1, "one", driver.Done)
		save(ctx, "id", 1, "one", driver.Known)
		save(ctx, "id", 2, "one", driver.Done)
		save(ctx, "id", 1, "two", driver.Conflict)
		save(ctx, "other", 3, "three", driver.Done) // the record of 1 and 2 has expired
		save(ctx, "other", 2, "three", driver.Conflict)
		stored(ctx, "id", 2)
		stored(ctx, "other", 3)
		stored(ctx, "", 0)
		a.has("one", "one", "three")
		for e, err := range a.store.Forward(ctx, lockedmemory.Place{}) {
			if want := map[int64]int{1: 1, 3: 2, 5: 3}[e.Place.N]; err != nil || e.Number != want ||
				(e.ID == "other") != (want == 3) {
				h.Errorf("%+v, %v; want number %d", e, err, want)
			}
		}
	})
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	n = 0
	a.turn(func(ctx context.Context) {
		lease, _ = lockedmemory.Lease(ctx)
		save(ctx, "id", 2, "one", driver.Known)
		save(ctx, "id", 3, "two", driver.Done)
		stored(ctx, "id", 3)
	})
	a.has("two")
}

// A driver whose client sends requests again answers a copy as the first.
func repeatedWrites(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		for i, n := range []int64{1, 2, 5, 4} { // 4 is late
			c, want := content("plain"), driver.Done
			if n == 2 || n == 5 {
				c = withID(content("with an ID"), "id", int(n))
			}
			if n == 4 {
				want = driver.Taken
			}
			write := driver.Append{Write: a.write(lease, n), Content: c}
			write.First = i == 0
			first, err := a.driver.Append(ctx, write)
			write.First = false
			again, err2 := a.driver.Append(ctx, write)
			if known := want == driver.Done && again.Outcome == driver.Known; err != nil || err2 != nil ||
				first.Outcome != want || again.Outcome != want && !known {
				h.Errorf("place %d: %+v, %v, and again %+v, %v", n, first, err, again, err2)
			}
		}
		w := a.write(lease, 6)
		for range 2 {
			if v, err := a.driver.Replace(ctx, driver.Replace{Write: w}); err != nil || v.Outcome != driver.Done {
				h.Errorf("Clear: %+v, %v", v, err)
			}
		}
		after := driver.Append{Write: a.write(lease, 7), Content: content("after")}
		if v, err := a.driver.Append(ctx, after); err != nil || v.Outcome != driver.Done {
			h.Errorf("%+v, %v", v, err)
		}
		if v, err := a.driver.Replace(ctx, driver.Replace{Write: w}); err != nil || v.Outcome != driver.Taken {
			h.Errorf("a late copy of Clear: %+v, %v", v, err)
		}
	})
	a.has("after")
}

func withID(c driver.Content, id string, number int) driver.Content {
	sum := sha256.Sum256(bytes.Join(c.Messages, nil))
	c.ID, c.Number, c.Digest = id, number, [16]byte(sum[:])
	return c
}
