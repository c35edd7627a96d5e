package storetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Of two Saves under one lease, the first arrives after the second was stored. The driver refuses it.
func lateSaveOfTheSameLease(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		append := func(n int64, name string) storedriver.Verdict {
			v, err := a.driver.Append(ctx, storedriver.Append{Write: a.write(lease, n), Content: content(name)})
			if err != nil {
				h.Fatal(err)
			}
			return v
		}
		if v := append(2, "second"); v.Outcome != storedriver.Done {
			h.Errorf("the second: %+v", v)
		}
		if v := append(1, "first"); v.Outcome != storedriver.Taken {
			h.Errorf("the first, late: %+v", v)
		}
		a.has("second")
		if v, err := a.driver.Clear(ctx, storedriver.Clear{Write: a.write(lease, 3)}); err != nil || v.Outcome != storedriver.Done {
			h.Errorf("Clear: %+v, %v", v, err)
		}
		if v := append(2, "second"); v.Outcome != storedriver.Taken {
			h.Errorf("one from before the Clear, late: %+v", v)
		}
	})
	a.has()
}

// write is one of its own under a lease, as the first access.
func (i *instance) write(lease *distlock.Lease, n int64) storedriver.Write {
	return storedriver.Write{Access: storedriver.Access{Session: i.session, Lease: lease, Fence: lease.Fence(), FirstAccess: true},
		N: n, Op: newOp()}
}

func content(name string) storedriver.Content {
	input, _ := codec.Encode(question(name))
	output, _ := codec.Encode(answer(name))
	return storedriver.Content{Messages: [][]byte{input, output}}
}

// Late copies of calls under a lease do not restore a cleared history, and do not hide that the session
// is gone.
func lateCopies(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{IdleTTL: 3 * time.Second}}, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		write := func(n int64, seen lockedmemory.Place) storedriver.Write {
			w := a.write(lease, n)
			w.FirstAccess, w.HistoryUpTo = n == 1, seen
			return w
		}
		at := func(n int64) lockedmemory.Place { return lockedmemory.Place{Fence: lease.Fence(), N: n} }
		check := func(what string, v storedriver.Verdict, err error, want ...storedriver.Outcome) {
			h.Helper()
			if err != nil || !slices.Contains(want, v.Outcome) {
				h.Errorf("%s: %+v, %v; want outcome %v", what, v, err, want)
			}
		}
		show := func(seen lockedmemory.Place) {
			h.Helper()
			access := write(1, seen).Access
			page, err := a.driver.Read(ctx, storedriver.Read{Access: access, Limit: 1})
			check("a late Load", page.Verdict, err, storedriver.Done)
		}
		first := storedriver.Append{Write: write(1, lockedmemory.Place{}), Content: content("first")}
		v, err := a.driver.Append(ctx, first)
		check("Save", v, err, storedriver.Done)
		clear := storedriver.Clear{Write: write(2, at(1))}
		v, err = a.driver.Clear(ctx, clear)
		check("Clear", v, err, storedriver.Done)
		show(lockedmemory.Place{})
		v, err = a.driver.Append(ctx, first)
		check("a late Save, after Clear", v, err, storedriver.Taken)
		v, err = a.driver.Clear(ctx, clear)
		check("a late Clear", v, err, storedriver.Done)
		v, err = a.driver.Append(ctx, storedriver.Append{Write: write(3, at(1)), Content: content("third")})
		check("Save after Clear", v, err, storedriver.Done)
		a.has("third")
		a.awaitEmpty()
		v, err = a.driver.Clear(ctx, clear)
		check("a late Clear, after a Save that has expired", v, err, storedriver.Done, storedriver.Taken)
		show(at(3))
		v, err = a.driver.Append(ctx, storedriver.Append{Write: write(4, at(3)), Content: content("fourth")})
		check("Save after expiry", v, err, storedriver.Gone)
		a.has()
	})
}

// Two stores write under one lease. Late Saves of one do not stand above the Clear of the other.
func lateSavesOfTheOtherStore(h *harness) {
	d := &late{next: 3}
	a := h.instance(nil, func(inner storedriver.Driver) storedriver.Driver {
		d.Driver = inner
		return d
	})
	b := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		for n := range 3 {
			if err := a.save(ctx, n); !errors.Is(err, distlock.ErrOutcomeUnknown) {
				h.Errorf("Save %d: %v", n, err)
			}
		}
		if err := b.store.Clear(ctx); err != nil {
			h.Error(err)
		}
		for _, each := range d.kept {
			if v, err := b.driver.Append(ctx, each); err != nil || v.Outcome != storedriver.Taken {
				h.Errorf("a late Save: %+v, %v", v, err)
			}
		}
		if err := b.store.Save(ctx, question(4), answer(4)); err != nil {
			h.Error(err)
		}
	})
	a.has(4)
}

func newOp() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return hex.EncodeToString(b[:])
}

// A driver whose client sends requests again answers a copy as the first.
func repeatedWrites(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		for i, n := range []int64{1, 2, 5, 4} { // 4 is late
			c, want := content("plain"), storedriver.Done
			if n == 2 || n == 5 {
				c = withID(content("with an ID"), fmt.Sprint("id-", n))
			}
			if n == 4 {
				want = storedriver.Taken
			}
			write := storedriver.Append{Write: a.write(lease, n), Content: c}
			write.FirstAccess = i == 0
			first, err := a.driver.Append(ctx, write)
			write.FirstAccess = false
			again, err2 := a.driver.Append(ctx, write)
			if known := want == storedriver.Done && again.Outcome == storedriver.Known; err != nil || err2 != nil ||
				first.Outcome != want || again.Outcome != want && !known {
				h.Errorf("place %d: %+v, %v, and again %+v, %v", n, first, err, again, err2)
			}
		}
		w := a.write(lease, 6)
		for range 2 {
			if v, err := a.driver.Clear(ctx, storedriver.Clear{Write: w}); err != nil || v.Outcome != storedriver.Done {
				h.Errorf("Clear: %+v, %v", v, err)
			}
		}
		after := storedriver.Append{Write: a.write(lease, 7), Content: content("after")}
		if v, err := a.driver.Append(ctx, after); err != nil || v.Outcome != storedriver.Done {
			h.Errorf("%+v, %v", v, err)
		}
		if v, err := a.driver.Clear(ctx, storedriver.Clear{Write: w}); err != nil || v.Outcome != storedriver.Taken {
			h.Errorf("a late copy of Clear: %+v, %v", v, err)
		}
	})
	a.has("after")
}
