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

// table is what the driver remembers of acquisitions and tokens.
type table struct {
	mu      sync.Mutex
	entries map[key]*entry
	sweepAt int                   // the number of entries at which the next sweep is due
	known   map[driver.Name]int64 // the highest token that was seen
}

func newTable() table {
	return table{entries: make(map[key]*entry), known: make(map[driver.Name]int64)}
}

// key names an acquisition.
type key struct {
	name  driver.Name
	owner string
}

// entry is an acquisition.
type entry struct {
	number   int      // of its last attempt
	last     *attempt // nil: it has ended
	granted  bool     // the last attempt was granted
	over     bool     // it was released, or has a tombstone
	ended    bool     // the release is decided
	released bool     // by it
	until    time.Time
}

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

// mostKnown bounds the names whose tokens are known. A token that is not known costs an exchange.
const mostKnown = 4096

// saw notes that a token of the name is reserved.
func (q *quorum) saw(name driver.Name, token int64) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if token <= q.known[name] {
		return
	}
	if len(q.known) >= mostKnown {
		// The clock is above most tokens.
		maps.DeleteFunc(q.known, func(_ driver.Name, token int64) bool { return token < now })
		if len(q.known) >= mostKnown {
			clear(q.known)
		}
	}
	q.known[name] = token
}

// token returns a token to propose: at least floor, above those that were seen, and not behind the
// clock.
func (q *quorum) token(name driver.Name, floor int64) int64 {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(floor, q.known[name]+1, now)
}

// nodeOwner is the owner of an attempt, as the nodes see it.
// ⚑ Each attempt has its own: the nodes refuse one that was undone.
func nodeOwner(owner string, number int) string {
	sum := sha256.Sum256([]byte(owner + "/" + strconv.Itoa(number)))
	return hex.EncodeToString(sum[:16])
}
