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
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// recordedFor is for how long the session of drafts of an epoch is in use: each Load tells all that
// stands there.
const recordedFor = 4 * time.Second

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
		outcome, mark, token = history.Stale, stale.MarkToken, stale.Fence
	case errors.Is(err, sessionstore.ErrIDConflict):
		outcome = history.Conflict
	case errors.Is(err, distlock.ErrNotAcquired), errors.Is(err, distlock.ErrNotHeld) && !errors.Is(err, distlock.ErrClosed),
		errors.Is(err, sessionstore.ErrRange), errors.Is(err, sessionstore.ErrChanged):
		outcome = history.Nothing
	default:
		return
	}
	p.End(func(o *history.Op) { o.Outcome, o.Fence, o.Mark = outcome, token, mark })
}

// histories are those of a run, with their findings.
type histories struct {
	c   *campaign
	dir string

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
	return &histories{c: c, dir: c.t.TempDir()}
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
	ops, err := history.ReadFiles(paths...)
	for _, path := range paths {
		_ = os.Remove(path)
	}
	if err != nil {
		h.c.blame(&finding{kind: "failure", at: now(), text: "reading a history: " + err.Error()})
		return
	}
	if from, until := used(ops); h.c.windows.forgetful(draftOf(epoch), from, until) != nil {
		h.skipped++ // what the servers have kept is not known
		return
	}
	v := history.CheckSessions(ops, history.Options{Timeout: limit})
	h.checked += v.Keys
	h.ops += v.Ops
	h.blame(epoch, ops, v)
	if len(v.Undecided) > 0 {
		h.doubtful++
		h.c.say("epoch %d, drafts, %d operations: undecided", epoch, v.Ops)
		h.postponed = append(h.postponed, postponed{epoch, ops})
	}
}

// used is from when until when a session was, on the clock of now.
func used(ops []history.Op) (from, until int64) {
	ahead := now() - history.Now()
	from = math.MaxInt64
	for _, o := range ops {
		from, until = min(from, o.Call+ahead), max(until, o.Call+ahead, o.Return+ahead)
	}
	return from, until
}

// tryAgain checks the undecided histories, one after the other, within limit. The run is over, so
// that the checks have more of the machine.
func (h *histories) tryAgain(limit time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	deadline := time.Now().Add(limit)
	for _, p := range h.postponed {
		// A limit of 0 would be the ordinary one.
		v := history.CheckSessions(p.ops, history.Options{Timeout: max(1, min(secondTry, time.Until(deadline)))})
		h.blame(p.epoch, p.ops, v)
		h.undecided += len(v.Undecided)
		if len(v.Undecided) > 0 {
			h.keep(p.epoch, "undecided", p.ops)
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
func (h *histories) blame(epoch int, ops []history.Op, v history.Verdict) {
	blame := func(text string) {
		h.c.blame(&finding{kind: "history", at: h.c.start + int64(epoch)*int64(h.c.plan.rotate), never: true,
			text: fmt.Sprintf("drafts of epoch %d: %s", epoch, text)})
	}
	if v.Malformed != nil {
		blame(v.Malformed.Error())
	}
	for _, each := range v.Violations {
		h.keep(epoch, "wrong", ops)
		blame(each.String())
	}
}

// keep writes operations to a file, for people: one on each line, after the process that made it.
func (h *histories) keep(epoch int, what string, ops []history.Op) {
	if *keep == "" {
		return
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, o := range ops {
		_ = lines.Encode(map[string]any{"Process": o.Process, "Op": o})
	}
	name := fmt.Sprintf("%s-%d-%d-%s.jsonl", h.c.plan.on, h.c.plan.seed, epoch, what)
	if err := os.WriteFile(filepath.Join(*keep, name), text.Bytes(), 0o600); err != nil {
		h.c.t.Error(err)
	}
}
