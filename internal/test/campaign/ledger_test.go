package campaign

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
)

// ledger is what workers have said of the sessions.
type ledger struct {
	c *campaign

	mu       sync.Mutex
	sessions map[string][]*attempt
	judging  sync.Mutex

	tally ledgerTally
}

// ledgerTally counts the judged turns.
type ledgerTally struct {
	turns, notes, clears, stray, strayRefused int
	stored                                    int
	before, unread                            int // before servers were emptied
	forgotten, outlived, sessions             int
	endings                                   map[ending]int
}

type reading struct {
	stored []message
	err    error
}

func newLedger(c *campaign) *ledger {
	return &ledger{
		c: c, sessions: make(map[string][]*attempt),
		tally: ledgerTally{endings: make(map[ending]int)},
	}
}

func (l *ledger) add(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A Clear is announced, or the ledger would not know of one whose worker is killed.
	if i := slices.IndexFunc(l.sessions[a.Session], func(b *attempt) bool { return b.own() == a.own() && b.Kind == a.Kind }); i >= 0 {
		l.sessions[a.Session][i] = a
	} else {
		l.sessions[a.Session] = append(l.sessions[a.Session], a)
	}
	if a.Ended == 0 {
		return
	}
	l.tally.endings[a.End]++
	if a.Past || a.Kind == aStrayWrite {
		l.tally.stray++
		if a.End == refused {
			l.tally.strayRefused++
		}
	}
	switch {
	case a.Kind == aStrayWrite:
	case !a.acknowledged():
	case a.Kind == aTurn:
		l.tally.turns++
	case a.Kind == aClear || a.Kind == aTurnClear:
		l.tally.clears++
	default:
		l.tally.notes++
	}
}

// judgeUntil judges the sessions whose time was over before a moment; all of them, if these are the
// last.
func (l *ledger) judgeUntil(moment int64, last bool) {
	l.judging.Lock()
	defer l.judging.Unlock()
	l.mu.Lock()
	due := make(map[string][]*attempt)
	for session, attempts := range l.sessions {
		if last || epochOf(session) < epoch(moment, l.c.start, l.c.plan.rotate) {
			due[session] = attempts
		}
	}
	l.mu.Unlock()
	if len(due) == 0 {
		return
	}
	read, closing := l.reader()
	defer closing()
	for session := range due {
		r := read(session)
		if r.err != nil && !last {
			continue // later
		}
		l.mu.Lock()
		attempts := slices.Clone(l.sessions[session])
		delete(l.sessions, session)
		l.tally.sessions++
		l.mu.Unlock()
		if r.err != nil {
			l.c.blame(&finding{kind: "failure", at: now(), text: "reading a session in the end: " + r.err.Error()})
			continue
		}
		v := &verdict{c: l.c, session: session, stored: r.stored, attempts: attempts}
		v.judge()
		l.mu.Lock()
		l.tally.stored += v.pairs
		l.tally.forgotten += v.forgotten
		l.tally.outlived += v.outlived
		l.mu.Unlock()
	}
}

// judgeSoFar judges the sessions in use by the reports so far, and leaves them to judgeUntil: a
// server is about to be emptied, and then loses all of them.
func (l *ledger) judgeSoFar() {
	l.judging.Lock()
	defer l.judging.Unlock()
	l.mu.Lock()
	sessions := slices.Collect(maps.Keys(l.sessions))
	l.mu.Unlock()
	read, closing := l.reader()
	defer closing()
	for _, session := range sessions {
		moment := now()
		r := read(session)
		if r.err != nil {
			l.mu.Lock()
			l.tally.unread++ // and judged in the end, without the data of this time
			l.mu.Unlock()
			continue
		}
		l.mu.Lock()
		v := &verdict{
			c: l.c, session: session, stored: r.stored, attempts: soFar(l.sessions[session], moment), again: true,
		}
		l.mu.Unlock()
		v.judge()
		l.mu.Lock()
		l.tally.before += v.pairs
		l.mu.Unlock()
	}
}

// soFar are the attempts that were over at a moment, and the Clears that may have been under way.
// The others may have been seen or not.
func soFar(attempts []*attempt, moment int64) (over []*attempt) {
	for _, a := range attempts {
		switch {
		case a.Ended != 0 && a.Ended < moment:
			over = append(over, a)
		case a.Kind == aClear || a.Kind == aTurnClear:
			b := *a
			b.End = unknown
			over = append(over, &b)
		}
	}
	return over
}

// reader reads sessions as they are stored.
func (l *ledger) reader() (read func(string) reading, closing func()) {
	store, closing, err := l.c.store()
	if err != nil {
		l.c.t.Fatal(err)
	}
	return func(session string) (r reading) {
		for range 3 {
			ctx, cancel := context.WithTimeout(lockedmemory.WithSession(context.Background(), session), 5*time.Second)
			r.stored, r.err = store.Load(ctx, "")
			cancel()
			if r.err == nil {
				break
			}
		}
		return r
	}, closing
}
