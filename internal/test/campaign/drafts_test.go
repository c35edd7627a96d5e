package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// draftOf is the session of an epoch whose calls are recorded, and judged by the histories.
func draftOf(epoch int) string { return fmt.Sprintf("e%d/draft", epoch) }

type draft struct {
	*hand
	memory
	session string
	began   int64 // of the turn
}

type named struct {
	id       string
	messages []message
}

func (h *hand) draftWork(session string) {
	if _, plain := h.store.(*document); plain {
		return
	}
	d := draft{h, h.store, session, now()}
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

func (d *draft) read(ctx context.Context) (all []lockedmemory.Exchange[message], err error) {
	most, way := 1+d.rng.IntN(20), d.rng.IntN(5)
	op := history.Op{Kind: history.Load}
	if way == 2 || way == 3 && d.rng.IntN(2) == 0 {
		op.Most = most
	}
	p := d.begin(ctx, op)
	switch way {
	case 0, 4:
		var messages []message
		messages, err = d.Load(ctx, "")
		p.Seen = entriesOf(messages)
	case 1:
		all, err = collect(d.Forward(ctx, lockedmemory.Place{}), 0)
	case 2:
		all, err = d.Last(ctx, most)
	case 3:
		all, err = collect(d.Backward(ctx, lockedmemory.Place{}), op.Most)
		slices.Reverse(all)
	}
	for _, e := range all {
		p.Seen = append(p.Seen, entriesOf(e.Messages)...)
	}
	if d.end(p, ctx, err); err != nil {
		if errors.Is(err, sessionstore.ErrChanged) {
			err = nil
		}
		return nil, err
	}
	d.counts["draft reads"]++
	if len(p.Seen) > onePage {
		d.counts["of several pages"]++
	}
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

type recorded struct {
	history.Op
	number int64
}

func (d *draft) begin(ctx context.Context, op history.Op) *recorded {
	op.Fence, op.Call = fenceOf(ctx), now()
	r := &recorded{op, d.next()}
	d.tell(&said{What: sayOperation, Key: d.session, Lease: r.number, Op: &r.Op})
	return r
}

// end tells the parent what an error says of an operation. A write whose error is not ErrOutcomeUnknown
// has written nothing. Other writes stay unknown.
func (d *draft) end(r *recorded, ctx context.Context, err error) {
	r.Return = now()
	token := fenceOf(ctx) // a Load may have raised it
	var stale *sessionstore.StaleError
	switch {
	case err == nil:
		r.Outcome, r.Fence = history.OK, token
	case errors.Is(err, sessionstore.ErrDeleted):
		r.Outcome, r.Began = history.Deleted, d.began
	case errors.As(err, &stale):
		r.Outcome, r.Mark, r.Fence = history.Stale, stale.MarkToken, stale.Fence
	case errors.Is(err, sessionstore.ErrIDConflict):
		r.Outcome, r.Fence = history.Conflict, token
	case errors.Is(err, distlock.ErrNotAcquired), errors.Is(err, distlock.ErrNotHeld) && !errors.Is(err, distlock.ErrClosed),
		errors.Is(err, sessionstore.ErrRange), errors.Is(err, sessionstore.ErrChanged):
		r.Outcome, r.Fence = history.Nothing, token
	case r.Kind != history.Load && !errors.Is(err, distlock.ErrOutcomeUnknown):
		r.Outcome = history.Nothing
	default:
		return
	}
	d.tell(&said{What: sayOperation, Key: d.session, Lease: r.number, Op: &r.Op})
}

func (d *draft) written(r *recorded, ctx context.Context, err error) error {
	if d.end(r, ctx, err); err == nil {
		d.counts["drafts"]++
	}
	if errors.Is(err, sessionstore.ErrRange) { // an earlier Replace of the turn has come late
		err = nil
	}
	return err
}

func fenceOf(ctx context.Context) int64 {
	if lease, ok := lockedmemory.Lease(ctx); ok {
		return lease.Fence()
	}
	return 0
}

// recordedFor is for how long the session of drafts of an epoch is in use.
const recordedFor = 4 * time.Second

type histories struct {
	c *campaign

	mu   sync.Mutex
	of   map[int]map[int64]*history.Op // by epoch, and by number
	next int                           // epoch
}

// mayStayUndecided is the share of a run's histories that may stay undecided; one may in any case.
// The checker tries all places for each operation of an unknown outcome, and some need too much time.
const mayStayUndecided = 0.05

const checkedFor = 30 * time.Second

// add takes an operation that begins, and again when it has returned.
func (h *histories) add(s *said) {
	h.mu.Lock()
	defer h.mu.Unlock()
	epoch := epochOf(s.Key)
	if epoch < h.next {
		return
	}
	if h.of[epoch] == nil {
		h.of[epoch] = make(map[int64]*history.Op)
	}
	s.Op.Process = fmt.Sprint("run-", s.Run)
	h.of[epoch][s.Lease] = s.Op
}

func (h *histories) checkUntil(epoch int) {
	for {
		h.mu.Lock()
		this := h.next
		if this >= epoch {
			h.mu.Unlock()
			return
		}
		var ops []history.Op
		for _, op := range h.of[this] {
			ops = append(ops, *op)
		}
		delete(h.of, this)
		h.next++
		h.mu.Unlock()
		if len(ops) > 0 {
			h.check(this, ops)
		}
	}
}

func (h *histories) check(epoch int, ops []history.Op) {
	from, until := int64(math.MaxInt64), int64(0)
	for _, o := range ops {
		from, until = min(from, o.Call), max(until, o.Call, o.Return)
	}
	if h.c.windows.forgetful(draftOf(epoch), from, until) != nil {
		h.c.count("histories: not checked", 1) // what the servers have kept is not known
		return
	}
	h.c.count("histories: checked", 1)
	h.c.count("histories: operations", len(ops))
	violation, err := history.Check(ops, checkedFor)
	switch {
	case errors.Is(err, history.ErrUndecided):
		h.c.count("histories: undecided", 1)
		h.c.say("epoch %d, drafts, %d operations: undecided", epoch, len(ops))
	case err != nil:
		h.blame(epoch, err)
	case violation != nil:
		h.blame(epoch, violation)
	default:
		return
	}
	if *keep != "" { // for people
		text, err := json.MarshalIndent(ops, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(*keep, fmt.Sprintf("%s-%d-%d.json", h.c.plan.on, h.c.plan.seed, epoch)), text, 0o600)
		}
		if err != nil {
			h.c.t.Error(err)
		}
	}
}

func (h *histories) blame(epoch int, what any) {
	h.c.blame(&finding{kind: "history", at: h.c.start + int64(epoch)*int64(h.c.plan.rotate), never: true,
		text: fmt.Sprintf("drafts of epoch %d: %s", epoch, what)})
}

func (h *histories) doubt() error {
	undecided, checked := h.c.counted("histories: undecided"), h.c.counted("histories: checked")
	if undecided <= 1 || float64(undecided) <= mayStayUndecided*float64(checked) {
		return nil
	}
	return fmt.Errorf("%d of %d histories are undecided, which is more than %.0f %%: whether they are right is not known",
		undecided, checked, 100*mayStayUndecided)
}
