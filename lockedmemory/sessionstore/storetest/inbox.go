package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// appendAll makes an Append of the exchange of a name, under IDs with spaces between them, and checks its outcome.
func (i *instance) appendAll(w storedriver.Write, name, ids, superseded string, want storedriver.Outcome) {
	i.Helper()
	c := withID(content(name), "any")
	c.IDs = strings.Fields(ids)
	v, err := i.driver.Append(i.Context(), storedriver.Append{Write: w, Content: c, Superseded: strings.Fields(superseded)})
	if err != nil || v.Outcome != want {
		i.Errorf("Append of %s under %q: %+v, %v; want outcome %d", name, ids, v, err, want)
	}
}

// puts makes a Put that knows of a Delete, and checks its outcome. It returns the token of the last Delete.
func (i *instance) puts(deleted int64, id, question string, want storedriver.Outcome) int64 {
	i.Helper()
	v, err := i.driver.Put(i.Context(), storedriver.Put{Session: i.session, Deleted: deleted, ID: id, Question: []byte(question)})
	if err != nil || v.Outcome != want {
		i.Errorf("Put of %.20q: %+v, %v; want outcome %d", id, v, err, want)
	}
	return v.Mark.Fence
}

// pends checks which IDs are pending, by arrival, each with the question "of <ID>".
func (i *instance) pends(ids string) {
	i.Helper()
	v, items, err := i.driver.Pending(i.Context(), storedriver.Access{Session: i.session})
	var found []string
	for n, item := range items {
		if found = append(found, item.ID); string(item.Question) != "of "+item.ID || item.Age < 0 || n > 0 && item.Age > items[n-1].Age {
			i.Errorf("pending: %+v", item)
		}
	}
	if err != nil || v.Outcome != done || strings.Join(found, " ") != ids {
		i.Errorf("pending: %q, %+v, %v; want %q", found, v, err, ids)
	}
}

// One exchange answers several messages, or nothing is written. Each of them finds it, and the superseded
// ones are closed.
func answeredAll(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		first := a.write(lease, 1)
		a.closing("a stop", storedriver.CloseRequest{ID: "stopped"}, stopped, 0)
		a.closing("an arrival", storedriver.CloseRequest{By: "b"}, done, 0)
		a.appendAll(first, "1", "a b", "late stopped", done)
		a.appendAll(first, "1", "a b", "late stopped", known) // a copy
		mark := lease.Fence()
		fates := map[string]storedriver.Outcome{"a": known, "b": known, "late": superseded, "stopped": stopped, "c": done, "d": done}
		check := func(what string) {
			h.Helper()
			a.fates(what, mark, fates)
			a.has("1")
		}
		check("the first")
		a.appendAll(a.write(lease, 2), "1", "b a", "c", known)
		check("in another order")
		a.appendAll(a.write(lease, 3), "2", "a", "c", storedriver.Conflict)
		a.appendAll(a.write(lease, 4), "2", "a b", "c", storedriver.Conflict)
		a.appendAll(a.write(lease, 5), "2", "c b", "d", storedriver.Conflict)
		a.appendAll(a.write(lease, 6), "1", "c b", "d", storedriver.Conflict)
		a.appendAll(a.write(lease, 7), "2", "c stopped", "d", storedriver.Conflict)
		check("with one that is decided")
		a.appendAll(a.write(lease, 1), "2", "c d", "e", storedriver.Taken)
		fates["e"] = done
		check("at a place that is taken")
		for _, id := range []string{"a", "b"} {
			e, isKnown, err := a.memory.Answered(ctx, id)
			if err != nil || !isKnown || e.ID != "a" || !slices.Equal(e.Also, []string{"b"}) || !slices.Equal(e.Messages, exchange("1").Messages) {
				h.Errorf("Answered of %s: %+v, %t, %v", id, e, isKnown, err)
			}
		}
		a.under(ctx, a.write(lease, 8), "b", storedriver.Conflict)
		a.appendAll(a.write(lease, 9), "c", "c", "a", done)
		a.appendAll(a.write(lease, 10), "1", "a c", "", storedriver.Conflict)
		a.has("1", "c")
		a.fates("superseded, but answered", mark, map[string]storedriver.Outcome{"a": known, "c": known})
	})
}

// A function stores its answer itself. The superseded question is closed, too.
func answeredAllInside(h *harness) {
	a := h.instance(nil, nil)
	for _, id := range []string{"a", "b"} {
		if err := a.memory.Put(h.Context(), id, question(id)); err != nil {
			h.Error(err)
		}
	}
	results, err := a.memory.AnswerAll(h.Context(), []lockedmemory.Question[Message]{
		{ID: "a", Message: question("a"), Superseded: true}, {ID: "b", Message: question("b")},
	}, func(ctx context.Context, open []lockedmemory.Question[Message]) ([]Message, error) {
		return []Message{answer("b")}, a.memory.SaveOnce(ctx, "b", question("b"), answer("b"))
	})
	if err != nil || !errors.Is(results[0].Err, lockedmemory.ErrSuperseded) || !slices.Equal(results[1].Answer, []Message{answer("b")}) {
		h.Errorf("AnswerAll: %+v, %v", results, err)
	}
	a.pends("")
	if _, _, err := a.memory.Answered(h.Context(), "a"); !errors.Is(err, lockedmemory.ErrSuperseded) {
		h.Errorf("the superseded question: %v", err)
	}
	a.has("b")
}

// A refused Append of several IDs decides nothing, and its late copy brings nothing back.
func answeredAllRefused(h *harness) {
	a := h.instance(nil, nil)
	a.mustSave(h.Context(), "1")
	old, _ := a.stale(nil)
	oldLease, _ := lockedmemory.Lease(old)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.reads(a.write(lease, 1).Access, "any", done)
		a.appendAll(a.write(oldLease, 1), "2", "a b", "c", stale)
		a.fates("stale", lease.Fence(), map[string]storedriver.Outcome{"a": done, "b": done, "c": done})
		w := a.write(lease, 1)
		a.appendAll(w, "2", "d e", "", done)
		if v, err := a.driver.Clear(ctx, storedriver.Clear{Write: a.write(lease, 2), Forget: true}); err != nil || v.Outcome != done {
			h.Errorf("Delete: %+v, %v", v, err)
		}
		a.appendAll(w, "2", "d e", "f", storedriver.Taken)
		a.fates("refused", lease.Fence(), map[string]storedriver.Outcome{"a": done, "b": done, "c": done, "d": done, "e": done, "f": done})
	})
	a.has()
	b := h.instance(nil, nil)
	var first storedriver.Write
	b.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		w := b.write(lease, 1)
		w.HistoryUpTo = lockedmemory.Place{Fence: lease.Fence(), N: 1}
		b.appendAll(w, "1", "a b", "", storedriver.Gone)
		first = b.write(lease, 2)
		b.appendAll(first, "1", "a b", "", done)
	})
	b.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		b.appendAll(b.write(lease, 1), "1", "a b", "", known) // shows the token
		first.N++
		b.appendAll(first, "2", "c d", "", stale)
		b.closing("a stop of the session", storedriver.CloseRequest{Stop: lease.Fence()}, done, lease.Fence())
		w := b.write(lease, 2)
		w.Since = lease.Fence() - 1
		b.appendAll(w, "2", "a d", "", ended)
	})
	b.has("1")
}

// A Replace keeps the IDs of an exchange, and a Fork leaves them out.
func replacedKeepsAlso(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.appendAll(a.write(lease, 1), "1", "a b cd c", "", done)
	})
	a.turn(func(ctx context.Context) {
		edited := exchange("2")
		all := a.all(ctx)
		edited.Place, edited.ID, edited.Also = all[0].Place, all[0].ID, all[0].Also[:2]
		twice := edited
		if twice.Also = []string{"b", "a"}; !errors.Is(a.replace(ctx, 0, 0, twice), lockedmemory.ErrInvalidID) {
			h.Error("a Replace with an ID twice")
		}
		parted := exchange("3") // its ID is a part of another
		parted.Place, parted.ID = all[0].Place, all[0].Also[2]
		if err := a.replace(ctx, 0, 0, edited, parted); err != nil {
			h.Errorf("Replace: %v", err)
		}
	})
	if e, isKnown, err := a.memory.Answered(h.Context(), "c"); err != nil || !isKnown || e.ID != "c" || e.Also != nil {
		h.Errorf("Answered of c: %+v, %t, %v", e, isKnown, err)
	}
	for _, id := range []string{"a", "b", "cd"} {
		e, isKnown, err := a.memory.Answered(h.Context(), id)
		if err != nil || !isKnown || e.ID != "a" || !slices.Equal(e.Also, []string{"b", "cd"}) || e.Input() != question("2") {
			h.Errorf("Answered of %s: %+v, %t, %v", id, e, isKnown, err)
		}
	}
}

// The rules of a Put, in their order.
func putsHaveRules(h *harness) {
	a := h.instance(nil, nil)
	a.pends("")
	large := strings.Repeat("x", storedriver.InboxBytes)
	a.puts(0, "large", large, done) // an empty inbox takes any
	a.puts(0, "b", "of b", storedriver.Full)
	a.closing("a stop", storedriver.CloseRequest{ID: "large"}, stopped, 0)
	a.puts(0, "large", "", stopped)
	a.puts(0, "b", "of b", done)
	a.puts(0, "a", "of a", done)
	a.puts(0, "b", "another", done)
	a.pends("b a")
	a.mustSaveOnce(h.Context(), "a", 1)
	a.puts(0, "a", "of a", known)
	a.pends("b")
	all := []string{"b"}
	for i := range storedriver.InboxMax - 1 {
		all = append(all, fmt.Sprint(i))
		a.puts(0, fmt.Sprint(i), fmt.Sprint("of ", i), done)
	}
	a.puts(0, "more", "of more", storedriver.Full)
	a.puts(0, "7", "another", done)
	a.puts(0, "a", "another", known)
	a.puts(1, "a", "another", storedriver.Deleted)
	a.pends(strings.Join(all, " "))
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.appendAll(a.write(lease, 1), "2", strings.Join(all[1:], " "), "b", done)
	})
	a.pends("")
	a.puts(0, "b", "of b", superseded)
	a.puts(0, "bytes\x00\xff\n\"'", "of bytes\x00\xff\n\"'", done)
	a.pends("bytes\x00\xff\n\"'")
}

// Delete removes the inbox, and a late copy of a Put from before brings nothing back. Clear leaves it.
func putsAroundDelete(h *harness) {
	a := h.instance(nil, nil)
	a.puts(0, "a", "of a", done)
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Error(err)
	}
	a.pends("a")
	if err := a.memory.Delete(h.Context()); err != nil {
		h.Error(err)
	}
	a.pends("")
	token := a.puts(0, "a", "of a", storedriver.Deleted)
	a.pends("")
	if a.puts(token, "a", "of a", done); token == 0 {
		h.Error("a Put after a Delete does not say its token")
	}
	if err := a.memory.Put(h.Context(), "b", question("b")); err != nil {
		h.Errorf("Put after a Delete: %v", err)
	}
	found, err := a.memory.Pending(h.Context())
	if err != nil || len(found) != 2 || !errors.Is(found[0].Err, sessionstore.ErrCodec) || found[1].Err != nil || found[1].Message != question("b") {
		h.Errorf("Pending: %+v, %v; want a question that cannot be read, and that of b", found, err)
	}
}

// Pending refuses a lease as a Read does, and shows its token.
func pendingUnderLeases(h *harness) {
	a := h.instance(nil, nil)
	a.puts(0, "a", "of a", done)
	list := func(access storedriver.Access, want storedriver.Outcome) {
		h.Helper()
		access.Session = a.session
		v, items, err := a.driver.Pending(h.Context(), access)
		if err != nil || v.Outcome != want || (len(items) == 1) != (want == done) {
			h.Errorf("Pending: %+v, %v, %v; want outcome %d", v, items, err, want)
		}
	}
	old, _ := a.stale(nil)
	oldLease, _ := lockedmemory.Lease(old)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		access := a.write(lease, 1).Access
		list(access, done)
		list(a.write(oldLease, 1).Access, stale)
		access.FirstAccess = false
		list(access, done)
	})
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		a.mustLoad(ctx)
		a.closing("a stop of the session", storedriver.CloseRequest{Stop: lease.Fence()}, done, lease.Fence())
		access := a.write(lease, 1).Access
		access.Since = lease.Fence() - 1
		list(access, ended)
	})
}

// Inboxes lists a session from its Put on until nothing is pending.
func inboxesListed(h *harness) {
	a := h.instance(nil, nil)
	listed := func() (found bool) {
		for name, err := range a.store.Inboxes(h.Context()) {
			if err != nil {
				h.Fatal(err)
			}
			found = found || name == a.session
		}
		return found
	}
	if listed() {
		h.Error("listed before a Put")
	}
	for id, removes := range map[string]func(){
		"answered": func() { a.mustSaveOnce(h.Context(), "answered", 1) },
		"closed": func() {
			if _, err := a.memory.Stop(h.Context(), "closed", 0); err != nil {
				h.Error(err)
			}
		},
		"deleted": func() {
			if err := a.memory.Delete(h.Context()); err != nil {
				h.Error(err)
			}
		},
	} {
		if err := a.memory.Put(h.Context(), id, question(1)); err != nil {
			h.Error(err)
		}
		if !listed() {
			h.Errorf("%s: not listed after a Put", id)
		}
		removes()
		_ = listed() // this may remove the name
		if listed() {
			h.Errorf("%s: listed with nothing that is pending", id)
		}
	}
}

// Bad input to an inbox is refused, and nothing is kept.
func badQuestions(h *harness) {
	a := h.instance(&options{view: sessionstore.Options{MaxMessage: 1000}}, nil)
	short := h.instance(&options{Retention: sessionstore.Retention{RememberIDs: storedriver.InboxLife - time.Second}}, nil)
	for _, test := range []struct {
		what string
		of   *instance
		id   string
		text string
		want error
	}{
		{"an empty ID", a, "", "1", lockedmemory.ErrInvalidID},
		{"a long ID", a, strings.Repeat("x", 513), "1", lockedmemory.ErrInvalidID},
		{"a large question", a, "a", strings.Repeat("x", 1000), sessionstore.ErrTooLarge},
		{"short RememberIDs", short, "a", "1", distlock.ErrInvalidOption},
	} {
		if err := test.of.memory.Put(h.Context(), test.id, question(test.text)); !errors.Is(err, test.want) {
			h.Errorf("%s: %v; want %v", test.what, err, test.want)
		}
	}
	a.pends("")
}
