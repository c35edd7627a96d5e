package campaign

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/belugalock/belugalock/internal/test/history"
)

// recordedFor is for how long the session of drafts of an epoch is in use: each Load tells all that
// stands there.
const recordedFor = 4 * time.Second

// histories are what workers have said of the sessions of drafts.
type histories struct {
	c *campaign

	mu                               sync.Mutex
	of                               map[int]map[int64]*history.Op // by epoch, and by number
	next                             int                           // epoch
	checked, ops, skipped, undecided int
}

// mayStayUndecided is the share of a run's histories that may stay undecided; one may in any case.
// Faults leave operations with an unknown outcome. The checker tries all places for each of them,
// and some histories need too much time. They may be right or wrong. A few of them take little from
// the evidence of the others: a fault in a share p of all histories escapes n decided ones with
// (1-p)^n, and a twentieth more would hardly change that.
const mayStayUndecided = 0.05

// checkedFor is for how long a history is checked.
const checkedFor = 30 * time.Second

func newHistories(c *campaign) *histories {
	return &histories{c: c, of: make(map[int]map[int64]*history.Op)}
}

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

// checkUntil checks the histories of the epochs before one.
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
		h.skipped++ // what the servers have kept is not known
		return
	}
	h.checked++
	h.ops += len(ops)
	violation, err := history.Check(ops, checkedFor)
	switch {
	case errors.Is(err, history.ErrUndecided):
		h.undecided++
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

// doubt is an error if too many histories have stayed undecided.
func (h *histories) doubt() error {
	if h.undecided <= 1 || float64(h.undecided) <= mayStayUndecided*float64(h.checked) {
		return nil
	}
	return fmt.Errorf("%d of %d histories are undecided, which is more than %.0f %%: whether they are right is not known",
		h.undecided, h.checked, 100*mayStayUndecided)
}
