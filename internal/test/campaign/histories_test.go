package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// The key and the session of each epoch whose history is recorded. The session has only the first
// few seconds of an epoch: each Load tells all that stands there.
const (
	recordedKey  = 0
	recordedTalk = talks
	recordedFor  = 4 * time.Second
)

// recorders are those of one process, by epoch: so that the history of an epoch can be read when it
// is over.
type recorders struct {
	dir string
	mu  sync.Mutex
	of  map[string]*history.Recorder
}

// at records what the process, by the name that it has there, does in an epoch. It returns nil if
// nothing is recorded.
func (r *recorders) at(epoch int, process string) *history.Recorder {
	if r.dir == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("%d,%s", epoch, strings.ReplaceAll(process, "/", "-"))
	rec := r.of[name]
	if rec == nil {
		var err error
		if rec, err = history.Create(filepath.Join(r.dir, name), process); err != nil {
			panic(fmt.Sprintf("a history: %v", err))
		}
		if r.of == nil {
			r.of = make(map[string]*history.Recorder)
		}
		r.of[name] = rec
	}
	return rec
}

// err says which histories are not whole, and so prove nothing.
func (r *recorders) err() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, rec := range r.of {
		if failed := rec.Err(); failed != nil {
			err = errors.Join(err, fmt.Errorf("the history %s: %w", name, failed))
		}
	}
	return err
}

// recordedWork is leaseWork for a key whose history is recorded.
func (h *hand) recordedWork(ctx context.Context, key string) {
	t := h.tools
	r := h.recorders.at(epochOf(key), h.name())
	began := now()
	inside := func(held *history.Held) func(*distlock.Lease) {
		return func(lease *distlock.Lease) {
			held.Check()
			h.think(lease)
			held.Check()
		}
	}
	if h.rng.IntN(3) == 0 {
		worked := false
		lease := func(ctx context.Context) (*distlock.Lease, bool) { return t.locker.FromContext(ctx, key) }
		take := func(ctx context.Context, fn func(context.Context) error) error {
			return t.locker.Do(ctx, key, fn, distlock.WithWait(-1))
		}
		err := r.Do(ctx, key, lease, take, func(_ context.Context, held *history.Held) error {
			worked = true
			h.section(held.Lease, began, false, inside(held))
			return nil
		})
		h.ended(err, worked)
		return
	}
	acquire := t.locker.Acquire
	if h.rng.IntN(2) == 0 {
		acquire = t.locker.TryAcquire
	}
	held, err := r.Acquire(ctx, acquire, key, distlock.WithWait(-1))
	if err != nil {
		h.ended(err, false)
		return
	}
	h.section(held.Lease, began, false, inside(held))
	if h.rng.IntN(2) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	h.ended(held.Release(ctx), true)
}

// recording is a memory whose calls are recorded.
type recording struct {
	memory
	recorder *history.Recorder
	session  string
}

// recorded is the memory of a task: that of a session whose history is recorded notes all calls.
func (t *task) recorded(m memory) memory {
	if t.kind != aTurn || t.session != talkOf(epochOf(t.session), recordedTalk) {
		return m
	}
	r := t.recorders.at(epochOf(t.session), t.name())
	if r == nil {
		return m
	}
	return recording{m, r, t.session}
}

func (r recording) begin(ctx context.Context, op history.Op) *history.Pending {
	op.Key, op.Fence = r.session, fenceOf(ctx)
	return r.recorder.Begin(op)
}

func (r recording) Save(ctx context.Context, input, output message) error {
	p := r.begin(ctx, history.Op{Kind: history.Save, Entry: input.Write})
	err := r.memory.Save(ctx, input, output)
	answered(p, ctx, err)
	return err
}

func (r recording) SaveOnce(ctx context.Context, id string, messages ...message) error {
	p := r.begin(ctx, history.Op{Kind: history.Save, Entry: messages[0].Write, Turn: id})
	err := r.memory.SaveOnce(ctx, id, messages...)
	answered(p, ctx, err)
	return err
}

func (r recording) Load(ctx context.Context, query string) ([]message, error) {
	p := r.begin(ctx, history.Op{Kind: history.Load})
	stored, err := r.memory.Load(ctx, query)
	if err != nil {
		answered(p, ctx, err)
		return nil, err
	}
	var seen []string
	for i := 0; i < len(stored); i++ {
		entry := stored[i].Write
		if i+1 < len(stored) && stored[i+1].Write == entry && stored[i+1].Role != stored[i].Role {
			i++
		} else {
			entry = "torn: " + entry
		}
		seen = append(seen, entry)
	}
	p.End(func(o *history.Op) { o.Outcome, o.Fence, o.Seen = history.OK, fenceOf(ctx), seen })
	return stored, nil
}

func fenceOf(ctx context.Context) int64 {
	if lease, ok := lockedmemory.Lease(ctx); ok {
		return lease.Fence()
	}
	return 0
}

// answered says what an error tells about a call. Whatever is not sure not to have happened is unknown.
func answered(p *history.Pending, ctx context.Context, err error) {
	token := fenceOf(ctx)
	outcome, mark := history.OK, int64(0)
	var stale *sessionstore.StaleError
	switch {
	case err == nil:
	case errors.As(err, &stale):
		outcome, mark, token = history.Stale, stale.Mark, stale.Fence
	case errors.Is(err, sessionstore.ErrTurnConflict):
		outcome = history.Conflict
	case errors.Is(err, distlock.ErrNotAcquired), errors.Is(err, distlock.ErrNotHeld) && !errors.Is(err, distlock.ErrClosed),
		errors.Is(err, sessionstore.ErrRange), errors.Is(err, sessionstore.ErrChanged):
		outcome = history.Nothing
	default:
		return
	}
	p.End(func(o *history.Op) { o.Outcome, o.Fence, o.Mark = outcome, token, mark })
}

// processName is that of a run in histories.
func processName(run int) string { return fmt.Sprint("run-", run) }

// struck notes a fault of a worker in advance: a stop, or a kill or a shutdown, which releases its
// locks.
func (h *histories) struck(w *worker, stopped bool) {
	if name := processName(w.run); stopped {
		h.events.Stop(name)
	} else {
		h.events.Kill(name)
	}
}

// histories are those of a run, with their findings.
type histories struct {
	c      *campaign
	dir    string
	events *history.Recorder // the faults of workers and servers

	mu                    sync.Mutex
	checked, ops, skipped int
	next                  int // epoch
	postponed             []postponed
	doubtful              int // that were postponed, and decided then or not
	undecided             int // in the end
}

// postponed is the history of a key or session that was not decided in time.
type postponed struct {
	epoch int
	check func([]history.Op, history.Options) history.Verdict
	what  string
	ops   []history.Op
}

// mayStayUndecided is the share of a run's histories that may stay undecided; one may in any case.
// Faults leave operations with an unknown outcome. The checker tries all places for each of them,
// and some histories need too much time. They may be right or wrong. A few of them take little from
// the evidence of the others: a fault in a share p of all histories escapes n decided ones with
// (1-p)^n, and a twentieth more would hardly change that.
const mayStayUndecided = 0.05

// firstTry is for how long an epoch's histories are checked while the run goes on; secondTry is for
// how long one is checked after it.
const (
	firstTry  = 5 * time.Second
	secondTry = 30 * time.Second
)

func newHistories(c *campaign) *histories {
	h := &histories{c: c, dir: c.t.TempDir()}
	var err error
	if h.events, err = history.Create(filepath.Join(h.dir, "events"), "parent"); err != nil {
		c.t.Fatal(err)
	}
	return h
}

// checkUntil checks the histories of the epochs before one, and removes them.
func (h *histories) checkUntil(epoch int, limit time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; h.next < epoch; h.next++ {
		h.check(h.next, limit)
	}
}

// check checks one epoch. It needs h.mu.
func (h *histories) check(epoch int, limit time.Duration) {
	paths, _ := filepath.Glob(filepath.Join(h.dir, fmt.Sprint(epoch, ",*")))
	if len(paths) == 0 {
		return
	}
	ops, err := history.ReadFiles(append(paths, filepath.Join(h.dir, "events"))...)
	for _, path := range paths {
		_ = os.Remove(path)
	}
	if err != nil {
		h.c.blame(&finding{kind: "failure", at: now(), text: "reading a history: " + err.Error()})
		return
	}
	ops = endedByOthers(ops)
	opts := history.Options{Timeout: limit}
	h.verdict(epoch, "leases", ops, history.CheckLeases, opts)
	for what, session := range map[string]string{"sessions": talkOf(epoch, recordedTalk), "drafts": draftOf(epoch)} {
		if from, until := used(ops, session); h.c.windows.forgetful(session, from, until) != nil {
			h.skipped++ // what the servers have kept is not known
			continue
		}
		of := slices.DeleteFunc(slices.Clone(ops), func(o history.Op) bool { return o.Key != history.Hash(session) })
		h.verdict(epoch, what, of, history.CheckSessions, opts)
	}
}

// used is from when until when a session was, on the clock of now.
func used(ops []history.Op, session string) (from, until int64) {
	ahead := now() - history.Now()
	from = math.MaxInt64
	for _, o := range ops {
		if o.Key == history.Hash(session) {
			from, until = min(from, o.Call+ahead), max(until, o.Call+ahead, o.Return+ahead)
		}
	}
	return from, until
}

// verdict checks histories, and keeps those that are not decided for another try.
func (h *histories) verdict(
	epoch int, what string, ops []history.Op, check func([]history.Op, history.Options) history.Verdict, opts history.Options,
) {
	v := check(ops, opts)
	h.checked += v.Keys
	h.ops += v.Ops
	h.blame(epoch, what, ops, v)
	for _, key := range v.Undecided {
		h.doubtful++
		h.c.say("epoch %d, %s, %d operations: undecided", epoch, what, v.Ops)
		// What has no key concerns all.
		of := slices.DeleteFunc(slices.Clone(ops), func(o history.Op) bool { return o.Key != key && o.Key != "" })
		h.postponed = append(h.postponed, postponed{epoch, check, what, of})
	}
}

// tryAgain checks the undecided histories, one after the other, within limit. The run is over, so
// that the checks have more of the machine.
func (h *histories) tryAgain(limit time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	deadline := time.Now().Add(limit)
	for _, p := range h.postponed {
		// A limit of 0 would be the ordinary one.
		v := p.check(p.ops, history.Options{Timeout: max(1, min(secondTry, time.Until(deadline)))})
		h.blame(p.epoch, p.what, p.ops, v)
		h.undecided += len(v.Undecided)
		for _, key := range v.Undecided {
			h.keep(p.epoch, "undecided-"+p.what, key, p.ops)
		}
	}
	h.postponed = nil
}

// doubt is an error if too many histories have stayed undecided.
func (h *histories) doubt() error {
	if h.undecided <= 1 || float64(h.undecided) <= mayStayUndecided*float64(h.checked) {
		return nil
	}
	return fmt.Errorf("%d of %d histories are undecided, which is more than %.0f %%: whether they are right is not known",
		h.undecided, h.checked, 100*mayStayUndecided)
}

// blame reports the faults of a history.
func (h *histories) blame(epoch int, what string, ops []history.Op, v history.Verdict) {
	blame := func(text string) {
		h.c.blame(&finding{kind: "history", at: h.c.start + int64(epoch)*int64(h.c.plan.rotate), never: true,
			text: fmt.Sprintf("%s of epoch %d: %s", what, epoch, text)})
	}
	if v.Malformed != nil {
		blame(v.Malformed.Error())
	}
	for _, each := range v.Violations {
		h.keep(epoch, what, each.Key, ops)
		blame(each.String())
	}
}

// keep writes the operations on a key to a file, for people: one on each line, after the process
// that made it.
func (h *histories) keep(epoch int, what, key string, ops []history.Op) {
	if *keep == "" {
		return
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, o := range ops {
		if o.Key == key || o.Key == "" {
			_ = lines.Encode(map[string]any{"Process": o.Process, "Op": o})
		}
	}
	name := fmt.Sprintf("%s-%d-%d-%s.jsonl", h.c.plan.on, h.c.plan.seed, epoch, what)
	if err := os.WriteFile(filepath.Join(*keep, name), text.Bytes(), 0o600); err != nil {
		h.c.t.Error(err)
	}
}

// endedByOthers leaves out what holders say of the end of leases that Close released, as at a
// shutdown. The history has such a process as killed. A grant in the moment between that note and
// its end has no end in the history, and is left out too.
func endedByOthers(ops []history.Op) []history.Op {
	ended := make(map[string]int64)
	for _, o := range ops {
		if o.Kind == history.Killed && (ended[o.Process] == 0 || o.Call < ended[o.Process]) {
			ended[o.Process] = o.Call
		}
	}
	for i := range ops {
		if o := &ops[i]; o.Kind == history.Release && ended[o.Process] != 0 && o.Return >= ended[o.Process] {
			o.Outcome, o.Return = history.Unknown, 0
		}
		if o := &ops[i]; o.Kind == history.Acquire && ended[o.Process] != 0 && o.Call >= ended[o.Process] {
			o.Outcome, o.Return = history.Unknown, 0
		}
	}
	return slices.DeleteFunc(ops, func(o history.Op) bool {
		at := ended[o.Process]
		return at != 0 && o.Call >= at && (o.Kind == history.Release || o.Kind == history.Lost)
	})
}
