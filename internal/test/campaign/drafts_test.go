package campaign

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// draftOf is the session of an epoch whose exchanges are replaced and deleted. Each call is recorded, and
// the histories judge them.
func draftOf(epoch int) string { return fmt.Sprintf("e%d/draft", epoch) }

// editing is a store of the sessions that can replace and delete.
type editing interface {
	memory
	Append(ctx context.Context, messages ...message) error
	Replace(ctx context.Context, from, to lockedmemory.Place, with ...lockedmemory.Exchange[message]) error
	Delete(ctx context.Context) error
	Last(ctx context.Context, n int) ([]lockedmemory.Exchange[message], error)
	Forward(ctx context.Context, after lockedmemory.Place) iter.Seq2[lockedmemory.Exchange[message], error]
	Backward(ctx context.Context, before lockedmemory.Place) iter.Seq2[lockedmemory.Exchange[message], error]
}

// draft is the session of drafts, as a hand works with it.
type draft struct {
	*hand
	editing
	recorder *history.Recorder
	session  string
	began    int64 // of the turn
}

// named is an exchange that was saved under an ID.
type named struct {
	id       string
	messages []message
}

// draftWork reads the session of drafts, or changes it in a turn.
func (h *hand) draftWork(session string) {
	store, ok := h.store.(editing)
	recorder := h.recorders.at(epochOf(session), h.name())
	if _, plain := h.store.(*document); plain || !ok || recorder == nil {
		return
	}
	d := draft{h, store, recorder, session, history.Now()}
	ctx, cancel := h.limited()
	defer cancel()
	ctx = lockedmemory.WithSession(ctx, session)
	if h.rng.IntN(2) == 0 {
		var err error
		for n := 1 + h.rng.IntN(8); n > 0 && err == nil; n-- {
			_, err = d.read(ctx)
		}
		h.ended(err, false)
		return
	}
	worked := false
	err := h.memory.Turn(ctx, func(ctx context.Context) error {
		worked = true
		for range 1 + h.rng.IntN(6) {
			if err := d.edit(ctx, h.memory); err != nil {
				return err
			}
			h.rest(between(h.rng, 0, 2*time.Millisecond))
		}
		return nil
	})
	h.ended(err, worked)
}

// read reads the session in one of the ways that the store has.
func (d *draft) read(ctx context.Context) (all []lockedmemory.Exchange[message], err error) {
	most, way := 1+d.rng.IntN(20), d.rng.IntN(5)
	op := history.Op{Kind: history.Load}
	if way == 2 || way == 3 && d.rng.IntN(2) == 0 {
		op.Most = most
	}
	p := d.begin(ctx, op)
	var seen []string
	switch way {
	case 0, 4:
		var messages []message
		messages, err = d.Load(ctx, "")
		seen = entriesOf(messages)
	case 1:
		all, err = collect(d.Forward(ctx, lockedmemory.Place{}), 0)
	case 2:
		all, err = d.Last(ctx, most)
	case 3:
		all, err = collect(d.Backward(ctx, lockedmemory.Place{}), op.Most)
		slices.Reverse(all)
	}
	if err != nil {
		d.answered(p, ctx, err)
		if errors.Is(err, sessionstore.ErrChanged) {
			err = nil
		}
		return nil, err
	}
	for _, e := range all {
		seen = append(seen, entriesOf(e.Messages)...)
	}
	d.counts["draft reads"]++
	if len(seen) > onePage {
		d.counts["of several pages"]++
	}
	p.End(func(o *history.Op) { o.Outcome, o.Fence, o.Seen = history.OK, fenceOf(ctx), seen })
	return all, nil
}

// collect returns the exchanges of a sequence, or the first ones; 0: all.
func collect(exchanges iter.Seq2[lockedmemory.Exchange[message], error], most int) (all []lockedmemory.Exchange[message], err error) {
	for e, err := range exchanges {
		if err != nil {
			return nil, err
		}
		if all = append(all, e); len(all) == most {
			break
		}
	}
	return all, nil
}

// onePage is how many exchanges the first page of a read has.
const onePage = 16

// edit reads the session and changes it, in a turn.
func (d *draft) edit(ctx context.Context, memory *locked) error {
	all, err := d.read(ctx)
	if err != nil {
		return err
	}
	d.rest(between(d.rng, 0, time.Millisecond))
	switch n := d.rng.IntN(40); {
	case n == 0:
		return d.written(d.begin(ctx, history.Op{Kind: history.Delete}), ctx, memory.Delete(ctx))
	case n < 3:
		return d.written(d.begin(ctx, history.Op{Kind: history.Clear}), ctx, memory.Clear(ctx))
	case n < 20 && len(all) >= onePage:
		return d.append(ctx, memory)
	case n < 32 && len(all) < onePage: // so that most histories soon have several pages
		for range 1 + d.rng.IntN(4) {
			if err := d.append(ctx, memory); err != nil {
				return err
			}
		}
		return nil
	}
	return d.replace(ctx, all)
}

// append saves an exchange: mostly a new one, sometimes the last one again, under its ID.
func (d *draft) append(ctx context.Context, memory *locked) error {
	saves := d.again
	if saves.id == "" || d.rng.IntN(6) > 0 {
		saves = named{messages: d.exchange()}
		if d.rng.IntN(3) > 0 {
			saves.id = fmt.Sprint("draft-", saves.messages[0].Write)
		}
		d.again = saves
	}
	op := history.Op{Kind: history.Save, Entry: saves.messages[0].Write, Turn: saves.id}
	p := d.begin(ctx, op)
	if saves.id != "" {
		return d.written(p, ctx, memory.SaveOnce(ctx, saves.id, saves.messages...))
	}
	return d.written(p, ctx, memory.Append(ctx, saves.messages...))
}

// replace puts up to two new exchanges in the place of one or two that were read.
func (d *draft) replace(ctx context.Context, all []lockedmemory.Exchange[message]) error {
	if len(all) == 0 {
		return nil
	}
	from := d.rng.IntN(len(all))
	to := from + d.rng.IntN(min(2, len(all)-from))
	op := history.Op{Kind: history.Replace}
	for _, e := range all[from : to+1] {
		op.Range = append(op.Range, e.Messages[0].Write)
	}
	var with []lockedmemory.Exchange[message]
	for range d.rng.IntN(3) {
		e := lockedmemory.Exchange[message]{Messages: d.exchange()}
		if with = append(with, e); len(with) == 1 && d.rng.IntN(2) == 0 {
			with[0].Place, with[0].ID = all[from].Place, all[from].ID
		}
		op.With = append(op.With, e.Messages[0].Write)
	}
	p := d.begin(ctx, op)
	return d.written(p, ctx, d.Replace(ctx, all[from].Place, all[to].Place, with...))
}

// exchange is a new one, of 1 to 5 messages.
func (d *draft) exchange() []message {
	messages := make([]message, 1+d.rng.IntN(5))
	entry := fmt.Sprint("d", d.config.Run, "-", d.next())
	for i := range messages {
		messages[i] = message{Turn: i, Write: entry, Seen: len(messages)}
	}
	return messages
}

// entriesOf names the exchanges of messages. One that is not whole is torn.
func entriesOf(messages []message) (entries []string) {
	for i := 0; i < len(messages); {
		first, n := messages[i], 1
		for i+n < len(messages) && n < first.Seen && messages[i+n].Write == first.Write && messages[i+n].Turn == n {
			n++
		}
		if entry := first.Write; first.Turn == 0 && n == first.Seen {
			entries = append(entries, entry)
		} else {
			entries = append(entries, fmt.Sprintf("torn: %s, %d from %d", entry, n, first.Turn))
		}
		i += n
	}
	return entries
}

func (d *draft) begin(ctx context.Context, op history.Op) *history.Pending {
	op.Key, op.Fence = d.session, fenceOf(ctx)
	return d.recorder.Begin(op)
}

// answered notes what an error tells about a call.
func (d *draft) answered(p *history.Pending, ctx context.Context, err error) {
	if errors.Is(err, sessionstore.ErrDeleted) {
		p.End(func(o *history.Op) { o.Outcome, o.Began = history.Deleted, d.began })
	}
	answered(p, ctx, err)
}

// written notes the outcome of a write. An error without ErrOutcomeUnknown says that nothing was written.
func (d *draft) written(p *history.Pending, ctx context.Context, err error) error {
	d.answered(p, ctx, err)
	switch {
	case err == nil:
		d.counts["drafts"]++
	case !errors.Is(err, distlock.ErrOutcomeUnknown):
		p.End(func(o *history.Op) { o.Outcome = history.Nothing })
	}
	if errors.Is(err, sessionstore.ErrRange) { // an earlier Replace of the turn has come late
		err = nil
	}
	return err
}
