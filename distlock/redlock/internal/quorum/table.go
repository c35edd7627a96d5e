package quorum

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// table has the acquisitions and the tokens that the driver knows.
type table struct {
	mu       sync.Mutex
	attempts int // their numbers, from 1
	entries  map[key]*entry
	sweepAt  int                   // the number of entries at which the next sweep is due
	known    map[driver.Name]int64 // the highest token of the driver's grants and Raises
}

func newTable() table {
	return table{entries: make(map[key]*entry), known: make(map[driver.Name]int64)}
}

// key names an acquisition.
type key struct {
	name  driver.Name
	owner string
}

// keepEntry is how long the entry of an acquisition is kept before its grant, and after its end.
const keepEntry = 10 * time.Second

// entry is an acquisition.
type entry struct {
	last      *attempt // nil: it has ended
	cancelled bool     // no Acquire gets the name: it was released, or has a tombstone
	released  bool     // the answer to the Release
	until     time.Time
}

func (e *entry) granted() bool { return e.last != nil && e.last.tokens() > 0 }

// entry returns the entry of an acquisition, which is kept for some time from now on.
func (t *table) entry(k key, kept time.Duration) *entry {
	now := time.Now()
	e := t.entries[k]
	if e == nil {
		t.sweep(now)
		e = new(entry)
		t.entries[k] = e
	}
	if until := now.Add(kept); until.After(e.until) {
		e.until = until
	}
	return e
}

// sweep removes the entries that were idle for long, each time their number has doubled.
func (t *table) sweep(now time.Time) {
	if len(t.entries) < max(t.sweepAt, 1024) {
		return
	}
	maps.DeleteFunc(t.entries, func(_ key, e *entry) bool { return e.until.Before(now) })
	t.sweepAt = 2 * len(t.entries)
}

// mostKnown bounds the names whose tokens are known. A token that is not known may cost an
// exchange.
const mostKnown = 4096

// noteToken notes the last token of a grant or Raise of the name.
func (q *quorum) noteToken(name driver.Name, token int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if token <= q.known[name] {
		return
	}
	if len(q.known) >= mostKnown {
		clear(q.known)
	}
	q.known[name] = token
}

// token returns a token to propose: above those that were proposed, and not behind the clock. ⚑ A
// driver that does not know the clock proposes 1: the nodes refuse it, and show their clocks.
func (q *quorum) token(name driver.Name) int64 {
	now := q.clock()
	if now == 0 {
		return 1
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(q.known[name]+1, now)
}

// nodeOwner is the owner of an attempt, as the nodes see it. Number 0 is that of an acquisition
// that the driver does not know.
// ⚑ Each attempt has its own: the nodes refuse one that was undone.
func nodeOwner(owner string, number int) string {
	sum := sha256.Sum256([]byte(owner + "/" + strconv.Itoa(number)))
	return hex.EncodeToString(sum[:16])
}
