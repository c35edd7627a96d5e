package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Shorter names of outcomes, for tables.
const (
	done, known         = storedriver.Done, storedriver.Known
	stopped, superseded = storedriver.Stopped, storedriver.Superseded
	ended, stale        = storedriver.Ended, storedriver.Stale
)

// closing makes a Close, with the IDs of a request, and checks the reply.
func (i *instance) closing(what string, c storedriver.CloseRequest, want storedriver.Outcome, mark int64) {
	i.Helper()
	for _, each := range []*string{&c.ID, &c.By} {
		if *each != "" {
			*each = storedriver.HashID(*each)
		}
	}
	c.Session = i.session
	v, err := i.driver.Close(i.Context(), c)
	if errors.Is(err, errors.ErrUnsupported) {
		i.Skip("the driver closes no message")
	}
	if err != nil || v.Outcome != want || v.Mark.Fence != mark {
		i.Errorf("%s: Close: %+v, %v; want outcome %d and mark %d", what, v, err, want, mark)
	}
}

// fates checks what became of messages, by a Close that does nothing: the mark has its bound.
func (i *instance) fates(what string, mark int64, fates map[string]storedriver.Outcome) {
	i.Helper()
	for id, fate := range fates {
		i.closing(what+": "+id, storedriver.CloseRequest{By: id, Below: 1}, fate, mark)
	}
}

// under makes an Append at a place of a lease, under an ID, and checks its outcome.
func (i *instance) under(ctx context.Context, w storedriver.Write, id string, want storedriver.Outcome) {
	i.Helper()
	c := content(id)
	if id != "" {
		c = withID(c, id)
	}
	if v, err := i.driver.Append(ctx, storedriver.Append{Write: w, Content: c}); err != nil || v.Outcome != want {
		i.Errorf("Append under %q: %+v, %v; want outcome %d", id, v, err, want)
	}
}

// reads makes a Read of an ID, with an access or without a lease, and checks its outcome.
func (i *instance) reads(access storedriver.Access, id string, want storedriver.Outcome) {
	i.Helper()
	access.Session = i.session
	page, err := i.driver.Read(i.Context(), storedriver.Read{Access: access, ID: id, Limit: 1})
	isKnown := want == known
	if isKnown {
		want = done
	}
	if err != nil || page.Outcome != want || page.Known != isKnown || (len(page.Entries) > 0) != isKnown {
		i.Errorf("Read of %q: %+v, %v; want outcome %d, known %t", id, page, err, want, isKnown)
	}
}

// A message is stored once, or closed: the first of the two decides. A closed ID is refused, and another one
// is not. So is each copy, and nothing about it is unknown.
func closedMessages(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.closing("an empty request", storedriver.CloseRequest{}, done, 0)
		a.under(ctx, a.write(lease, 1), "answered", done)
		mark := lease.Fence()
		for range 2 {
			a.closing("answered", storedriver.CloseRequest{ID: "answered"}, known, mark)
			a.closing("stopped", storedriver.CloseRequest{ID: "stopped"}, stopped, mark)
			a.closing("superseded", storedriver.CloseRequest{ID: "superseded", Below: mark + 1}, done, mark)
		}
		a.closing("closed already", storedriver.CloseRequest{ID: "stopped", Below: mark + 1}, done, mark)
		a.closing("closed already", storedriver.CloseRequest{ID: "superseded"}, superseded, mark)
		stays := func() {
			h.Helper()
			for _, access := range []storedriver.Access{{}, a.write(lease, 1).Access} {
				for id, want := range map[string]storedriver.Outcome{
					"answered": known, "stopped": stopped, "superseded": superseded, "open": done} {
					a.reads(access, id, want)
				}
			}
			a.has("answered")
		}
		stays()
		for id, fate := range map[string]storedriver.Outcome{"stopped": stopped, "superseded": superseded} {
			w := a.write(lease, 2)
			for range 2 {
				a.under(ctx, w, id, fate)
				w.FirstAccess = false
			}
		}
		stays()
		a.under(ctx, a.write(lease, 3), "open", done)
		a.has("answered", "open")
		if v, err := a.driver.Clear(ctx, storedriver.Clear{Write: a.write(lease, 4)}); err != nil || v.Outcome != done {
			h.Errorf("Clear: %+v, %v", v, err)
		}
		a.under(ctx, a.write(lease, 5), "stopped", stopped)
	})
	a.has()
}

// A closed ID is an error of its own, whatever the client has sent before.
func closedErrors(h *harness) {
	d := &sentTwice{}
	a := h.instance(nil, func(inner storedriver.Driver) storedriver.Driver { d.Driver = inner; return d })
	a.closing("stopped", storedriver.CloseRequest{ID: "stopped"}, stopped, 0)
	a.closing("superseded", storedriver.CloseRequest{ID: "superseded", Below: 1}, done, 0)
	for id, want := range map[string]error{"stopped": lockedmemory.ErrStopped, "superseded": lockedmemory.ErrSuperseded} {
		for _, between := range []func(){nil, func() {}} {
			d.between = between
			if err := a.saveOnce(h.Context(), id, id); !errors.Is(err, want) || errors.Is(err, lockedmemory.ErrSuperseded) != (id == "superseded") {
				h.Errorf("SaveOnce: %v, want %v", err, want)
			}
		}
		if e, isKnown, err := a.memory.Answered(h.Context(), id); !isKnown || !errors.Is(err, want) || len(e.Messages) > 0 {
			h.Errorf("Answered: %+v, %t, %v; want %v", e, isKnown, err, want)
		}
	}
	a.mustSaveOnce(h.Context(), "open", "open")
	a.has("open")
}

// Close raises the mark, also that of a session of which nothing is known. Lower tokens are refused from then
// on. The lock's owner is given a higher one.
func closeRaisesMark(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		fence := lease.Fence()
		a.closing("an unknown session", storedriver.CloseRequest{Mark: fence + 5}, done, 0)
		for range 2 {
			a.closing("a lower mark", storedriver.CloseRequest{Mark: fence + 4}, done, fence+5)
		}
		a.under(ctx, a.write(lease, 1), "", stale)
		a.reads(a.write(lease, 1).Access, "id", stale)
		a.mustSave(ctx, 1)
		raised := lease.Fence()
		if raised <= fence+5 {
			h.Errorf("the lease has token %d", raised)
		}
		a.closing("a known session", storedriver.CloseRequest{ID: "id", Mark: raised + 5}, stopped, raised)
		a.refused("Save", a.save(ctx, "late"), raised, raised+5)
		a.refused("Clear", a.memory.Clear(ctx), raised, raised+5)
		a.has(1)
	})
	a.mustSave(h.Context(), 2)
	a.has(1, 2)
}

// An access fails if the lease began to wait before a stop.
func endedLeases(h *harness) {
	a := h.instance(nil, nil)
	a.mustSave(h.Context(), 1)
	at := a.all(h.Context())[0].Place
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		stop := lease.Fence() - 5
		a.closing("stop", storedriver.CloseRequest{Stop: stop}, done, at.Fence)
		a.closing("an earlier stop", storedriver.CloseRequest{Stop: stop - 5}, done, at.Fence)
		access := func(since int64) storedriver.Write {
			w := a.write(lease, 1)
			w.Since = since
			return w
		}
		refused := func(w storedriver.Write) {
			h.Helper()
			a.reads(w.Access, "id", ended)
			a.under(ctx, w, "id", ended)
			cleared, err := a.driver.Clear(ctx, storedriver.Clear{Write: w})
			replaced, err2 := a.driver.Replace(ctx, storedriver.Replace{Write: w, From: at, To: at})
			forked, err3 := a.driver.Fork(ctx, storedriver.Fork{Write: w})
			for what, v := range map[string]storedriver.Verdict{"Clear": cleared, "Replace": replaced, "Fork": forked} {
				if err := errors.Join(err, err2, err3); err != nil || v.Outcome != ended {
					h.Errorf("%s: %+v, %v; want Ended", what, v, err)
				}
			}
		}
		refused(access(stop - 1))
		low := access(stop - 1)
		low.Fence = at.Fence - 1
		refused(low)
		for _, since := range []int64{0, stop, lease.Fence()} {
			a.reads(access(since).Access, "id", done)
		}
		a.under(ctx, access(stop), "id", done)
	})
	a.has(1, "id")
}

// A Close with a bound does nothing once the mark has reached it. A decided By closes nothing.
func closeHasConditions(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.under(ctx, a.write(lease, 1), "answered", done)
		mark := lease.Fence()
		a.closing("stopped", storedriver.CloseRequest{ID: "stopped"}, stopped, mark)
		a.closing("superseded", storedriver.CloseRequest{ID: "superseded", Below: mark + 1}, done, mark)
		all := storedriver.CloseRequest{ID: "open", By: "by", Mark: mark + 3, Stop: mark + 3}
		for _, all.Below = range []int64{mark - 1, mark} {
			a.closing("the mark has the bound", all, done, mark)
		}
		for _, all.Below = range []int64{0, mark + 1} {
			for by, fate := range map[string]storedriver.Outcome{"answered": known, "stopped": stopped, "superseded": superseded} {
				all.By = by
				a.closing("By is "+by, all, fate, mark)
			}
		}
		a.reads(a.write(lease, 1).Access, "open", done) // the mark is lower
		old := a.write(lease, 1).Access
		old.Since = mark - 1
		a.reads(old, "open", done) // nothing was stopped
		// Nothing has arrived, so nothing is judged.
		all.By = "by"
		a.closing("all at once", all, done, mark)
		a.fates("all at once", mark+3, map[string]storedriver.Outcome{"open": superseded, "by": done})
	})
	a.has("answered")
}

// Messages arrive once. A Close with a bound supersedes its By if a newer message has arrived, and is not
// closed.
func arrivals(h *harness) {
	a := h.instance(nil, nil)
	arrive := func(by string, want storedriver.Outcome) {
		h.Helper()
		a.closing("the arrival of "+by, storedriver.CloseRequest{By: by}, want, 0)
	}
	judge := func(by, id string, want storedriver.Outcome) {
		h.Helper()
		a.closing("the judgement of "+by, storedriver.CloseRequest{By: by, ID: id, Below: 1}, want, 0)
	}
	judge("never", "", done)
	arrive("1", done)
	judge("1", "", done)
	judge("never", "", done) // it has not arrived
	arrive("2", done)
	arrive("1", done)              // a copy is not the newest, and judges nothing
	judge("1", "open", superseded) // an older message overtakes none
	a.reads(storedriver.Access{}, "open", done)
	judge("2", "other", done) // the newest closes others
	a.reads(storedriver.Access{}, "other", superseded)
	judge("2", "1", done)   // closed before
	arrive("1", superseded) // again
	judge("2", "", done)    // a decided message has not arrived again
	arrive("3", done)
	a.closing("3", storedriver.CloseRequest{ID: "3"}, stopped, 0)
	judge("2", "", done) // the newest is closed
	arrive("4", done)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.under(ctx, a.write(lease, 1), "4", done)
		mark := lease.Fence()
		a.closing("2", storedriver.CloseRequest{By: "2", ID: "other2", Below: mark + 1}, superseded, mark)
		a.fates("at the end", mark, map[string]storedriver.Outcome{"never": done, "1": superseded, "2": superseded,
			"3": stopped, "4": known, "other": superseded, "other2": done})
	})
	a.has("4")
}

// Late copies of each kind of Close change nothing that came later.
func lateCloses(h *harness) {
	a := h.instance(nil, nil)
	all := []storedriver.CloseRequest{{By: "old"}, {By: "new"}}
	for _, c := range all {
		a.closing("an arrival", c, done, 0)
	}
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.mustSave(ctx, 1)
		mark := lease.Fence()
		for _, c := range []storedriver.CloseRequest{
			{ID: "stopped", Mark: mark + 1, Stop: mark + 1},
			{ID: "superseded", By: "new", Below: mark + 2},
			{ID: "late", By: "old", Below: mark + 2},
		} {
			a.closing(c.ID, c, map[string]storedriver.Outcome{"stopped": stopped, "late": superseded}[c.ID], mark)
			all = append(all, c)
			mark = max(mark, c.Mark)
		}
	})
	a.turn(func(ctx context.Context) {
		a.mustSaveOnce(ctx, "new", 2)
		lease, _ := lockedmemory.Lease(ctx)
		for _, c := range all {
			if c.Session = a.session; c.ID != "" {
				c.ID = storedriver.HashID(c.ID)
			}
			if c.By != "" {
				c.By = storedriver.HashID(c.By)
			}
			for range 2 {
				if _, err := a.driver.Close(ctx, c); err != nil {
					h.Errorf("a copy of %+v: %v", c, err)
				}
			}
		}
		a.fates("after copies", lease.Fence(), map[string]storedriver.Outcome{"stopped": stopped, "superseded": superseded,
			"late": done, "old": superseded, "new": known})
		a.mustSave(ctx, 3)
	})
	a.has(1, 2, 3)
}

// After a Delete, and after RememberIDs, closed messages are open, and messages have not arrived.
func closedForgotten(h *harness) {
	const remember = 2 * time.Second
	a := h.instance(&options{Retention: sessionstore.Retention{RememberIDs: remember}}, nil)
	var mark int64
	for id, deletes := range map[string]bool{"deleted": true, "expired": false} {
		a.closing("the older", storedriver.CloseRequest{By: "old"}, done, mark)
		a.closing("the newer", storedriver.CloseRequest{By: "new"}, done, mark)
		a.closing("closed", storedriver.CloseRequest{ID: id}, stopped, mark)
		closed := time.Now()
		a.reads(storedriver.Access{}, id, stopped)
		if deletes {
			if err := a.memory.Delete(h.Context()); err != nil {
				h.Fatal(err)
			}
		} else {
			time.Sleep(time.Until(closed.Add(remember + 2*time.Millisecond)))
		}
		a.turn(func(ctx context.Context) {
			a.mustSaveOnce(ctx, id, id)
			lease, _ := lockedmemory.Lease(ctx)
			mark = lease.Fence()
			old := storedriver.CloseRequest{By: "old", Below: mark + 1}
			a.closing("not arrived", old, done, mark)
			a.closing("arrived again", storedriver.CloseRequest{By: "old"}, done, mark)
			a.closing("not arrived", storedriver.CloseRequest{By: "new", Below: mark + 1}, done, mark)
		})
		a.isUnder(h.Context(), id, id)
	}
}
