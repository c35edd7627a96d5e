package storetest

import (
	"context"
	"errors"
	"strings"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// lost is a driver that loses the answer of the next write, if next is set; with untaken, the write itself.
type lost struct {
	storedriver.Driver
	next    bool
	untaken bool
	refusal storedriver.Outcome // the answer; Done: none
}

func (d *lost) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	return d.write(func() (storedriver.Verdict, error) { return d.Driver.Append(ctx, a) })
}

func (d *lost) Replace(ctx context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	return d.write(func() (storedriver.Verdict, error) { return d.Driver.Replace(ctx, r) })
}

func (d *lost) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	return d.write(func() (storedriver.Verdict, error) { return d.Driver.Clear(ctx, c) })
}

func (d *lost) write(write func() (storedriver.Verdict, error)) (v storedriver.Verdict, err error) {
	lose := d.next
	if d.next = false; !lose || !d.untaken {
		v, err = write()
	}
	if lose {
		if d.refusal != storedriver.Done {
			return storedriver.Verdict{Outcome: d.refusal}, nil
		}
		return storedriver.Verdict{}, errors.New("no answer")
	}
	return v, err
}

// repetition is a write outside a turn, or a turn, as docs/reference/errors.md calls it safe to repeat or not.
type repetition struct {
	call func(ctx context.Context, i *instance, before lockedmemory.Place) error
	safe bool
	// stored and unstored are the history after the same call again: if the first one took effect, and if it
	// did not. Between the two calls, another instance has saved "between".
	stored, unstored []any
	err              error // of the same call again, if the first one took effect
}

var repetitions = map[string]repetition{
	"Save": {
		call:     func(ctx context.Context, i *instance, _ lockedmemory.Place) error { return i.save(ctx, "own") },
		stored:   []any{"before", "own", "between", "own"},
		unstored: []any{"before", "between", "own"},
	},
	"SaveOnce": {
		call: func(ctx context.Context, i *instance, _ lockedmemory.Place) error {
			return i.saveOnce(ctx, "id", "own")
		},
		safe:     true,
		stored:   []any{"before", "own", "between"},
		unstored: []any{"before", "between", "own"},
	},
	"Answer": {
		call: func(ctx context.Context, i *instance, _ lockedmemory.Place) error {
			_, err := i.memory.Answer(ctx, "id", question("own"), func(context.Context) ([]Message, error) {
				return []Message{answer("own")}, nil
			})
			return err
		},
		safe:     true,
		stored:   []any{"before", "own", "between"},
		unstored: []any{"before", "between", "own"},
	},
	"Turn": { // of two steps, each a SaveOnce
		call: func(ctx context.Context, i *instance, _ lockedmemory.Place) error {
			return i.memory.Turn(ctx, func(ctx context.Context) error {
				if err := i.saveOnce(ctx, "id/1", "own"); err != nil {
					return err
				}
				return i.saveOnce(ctx, "id/2", "second")
			})
		},
		safe:     true,
		stored:   []any{"before", "own", "between", "second"},
		unstored: []any{"before", "between", "own", "second"},
	},
	"Replace": {
		call: func(ctx context.Context, i *instance, before lockedmemory.Place) error {
			return i.memory.Replace(ctx, before, before, exchange("own"))
		},
		stored:   []any{"own", "between"},
		unstored: []any{"own", "between"},
		err:      sessionstore.ErrRange,
	},
	"Clear": { // it erases what came between
		call: func(ctx context.Context, i *instance, _ lockedmemory.Place) error { return i.memory.Clear(ctx) },
	},
	"Delete": { // as Clear
		call: func(ctx context.Context, i *instance, _ lockedmemory.Place) error { return i.memory.Delete(ctx) },
	},
}

// The answer to a write is lost, or the write itself. Another instance saves, and then the caller makes the same
// call again, at another instance, too. The error says whether that is safe: then the exchange is stored once,
// and nothing is erased that came between.
func repeats(name string) func(*harness) {
	r := repetitions[name]
	return func(h *harness) {
		for took, history := range map[bool][]any{true: r.stored, false: r.unstored} {
			lossy := &lost{untaken: !took}
			a := h.instance(nil, func(d storedriver.Driver) storedriver.Driver { lossy.Driver = d; return lossy })
			b := h.instance(nil, nil)
			if err := b.memory.Delete(h.Context()); err != nil {
				h.Fatal(err)
			}
			b.mustSave(h.Context(), "before")
			before := b.all(h.Context())[0].Place
			lossy.next = true
			err := r.call(h.Context(), a, before)
			if !errors.Is(err, distlock.ErrOutcomeUnknown) || lossy.next {
				h.Fatalf("without an answer: %v; want ErrOutcomeUnknown", err)
			}
			if advised := strings.Contains(err.Error(), "repeat the call"); advised != r.safe ||
				!r.safe && !strings.Contains(err.Error(), "load the history") {
				h.Errorf("the advice is %q; a repetition is safe: %t", err, r.safe)
			}
			b.mustSave(h.Context(), "between")
			for n, i := range []*instance{a, b} {
				if n > 0 && !r.safe {
					break
				}
				if err := r.call(h.Context(), i, before); (err != nil || r.err != nil && took) && (!took || !errors.Is(err, r.err)) {
					h.Errorf("again, the first took effect: %t: %v", took, err)
				}
				i.has(history...)
			}
		}
	}
}
