package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Turns that are too old for the last lease of the session are not read. The next turn removes them, whole,
// but for the newest one.
func maxAge(h *harness) {
	const age = 2 * time.Second
	a := h.instance(&options{Retention: sessionstore.Retention{MaxAge: age}}, nil)
	all := a.over(nil, nil)
	var old []any
	for n := range 15 {
		old = append(old, fmt.Sprint("old", n))
	}
	id := ""
	for inTime := false; !inTime; { // or the first turns may be too old with good reason
		if err := a.memory.Clear(h.Context()); err != nil {
			h.Fatal(err)
		}
		start := time.Now()
		id += "id"
		a.turn(func(ctx context.Context) { a.mustSave(ctx, old[:12]...) })
		a.turn(func(ctx context.Context) {
			a.mustSaveOnce(ctx, id, old[12])
			a.mustSave(ctx, old[13])
		})
		a.turn(func(ctx context.Context) { a.mustSave(ctx, old[14:]...) })
		read := a.stored()
		if inTime = time.Since(start) < age; inTime && !slices.Equal(read, old) {
			h.Errorf("before MaxAge, %v are read", read)
		}
	}
	time.Sleep(age + 100*time.Millisecond)
	a.has(old...)
	a.turn(func(ctx context.Context) {
		a.mustLoad(ctx)
		a.has()
		a.isEmpty(h.Context())
		a.isGoneUnder(id)
	})
	all.has(old[14:]...)
	for n := range 3 {
		a.mustSave(h.Context(), fmt.Sprint(n))
		kept := all.stored()
		if kept[len(kept)-1] != any(fmt.Sprint(n)) {
			h.Errorf("after %d turns, %v stay", n+1, kept)
		}
		rest := slices.DeleteFunc(kept, func(name any) bool { return !slices.Contains(old, name) })
		most := [][]any{old[12:], old[14:], nil}[n] // a driver may remove more turns at once
		if !slices.Equal(rest, most) && !slices.Equal(rest, old[14:]) && len(rest) > 0 || n == 2 && len(rest) > 0 {
			h.Errorf("after %d turns, %v stay", n+1, rest)
		}
	}
}

// Reads and trimming compare the tokens of exchanges with that of the last access. The clock of the process
// has no part.
func maxAgeByTokens(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxAge: time.Hour}}, nil)
	all := a.over(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		save := func(after time.Duration, n int64) {
			w := a.write(lease, n)
			w.Fence, w.FirstAccess = lease.Fence()+after.Microseconds(), true
			v, err := a.driver.Append(ctx, storedriver.Append{Write: w, Content: content(fmt.Sprint(n))})
			if err != nil || v.Outcome != storedriver.Done {
				h.Fatalf("%+v, %v", v, err)
			}
		}
		stay := func(want int) {
			h.Helper()
			if found := all.all(h.Context()); len(found) != want {
				h.Errorf("%d exchanges stay, want %d", len(found), want)
			}
		}
		read := func(want int) {
			h.Helper()
			last, err := a.store.Last(h.Context(), 100)
			forward := a.names(a.store.Forward(h.Context(), lockedmemory.Place{}), 100)
			backward := a.names(a.store.Backward(h.Context(), lockedmemory.Place{}), 100)
			if err != nil || len(last) != want || len(forward) != want || len(backward) != want || len(a.stored()) != want {
				h.Errorf("%d, %d, %d and %d exchanges are read, %v; want %d",
					len(last), len(forward), len(backward), len(a.stored()), err, want)
			}
		}
		save(0, 1)
		save(time.Second, 2)
		save(time.Hour, 3)
		stay(3)
		read(3)
		save(time.Hour+time.Millisecond, 4)
		stay(3)
		read(3)
		save(2*time.Hour+time.Second, 5)
		read(1)
		save(2*time.Hour+2*time.Second, 6)
		stay(2)
		read(2)
	})
}

// isEmpty checks that each kind of read finds nothing.
func (i *instance) isEmpty(ctx context.Context) {
	i.Helper()
	last, err := i.store.Last(ctx, 10)
	found, err2 := i.store.Search(ctx, "old", 10)
	forward := i.names(i.store.Forward(ctx, lockedmemory.Place{}), 10)
	backward := i.names(i.store.Backward(ctx, lockedmemory.Place{}), 10)
	if err != nil || err2 != nil || len(last)+len(found)+len(forward)+len(backward) > 0 {
		i.Errorf("Last %v, %v; Search %v, %v; Forward %v; Backward %v", last, err, found, err2, forward, backward)
	}
}
