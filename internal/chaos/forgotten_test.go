package chaos

import (
	"fmt"
	"testing"

	"github.com/belugalock/belugalock/internal/integrity"
)

// book is a campaign that was, with one session and what its ledger knows.
type book struct {
	*campaign
	s *session
	v verdict
}

func newBook(t *testing.T) *book {
	b := &book{campaign: &campaign{t: t}, s: &session{name: "talk"}}
	b.sessions = []*session{b.s}
	return b
}

// turn is one that was answered: saved under a token, at a time, after a Load 5 before.
func (b *book) turn(fence, at int64, seen int) (stored []message) {
	u := &unit{session: b.s, kind: aTurn, turn: b.s.given, name: fmt.Sprint(b.s.given), answered: true}
	b.s.given++
	b.all = append(b.all, u)
	return b.attempt(u, fence, at, seen)
}

func (b *book) attempt(u *unit, fence, at int64, seen int) (stored []message) {
	id := len(b.attempts)
	a := &attempt{task: task{ID: id, Turn: u.turn}, of: u, begun: at - 10, ended: at + 10}
	a.loaded = &report{Asked: at - 5, Time: at - 4, Fence: fence}
	a.done = &report{End: saved, Asked: at, Time: at + 1, Fence: fence, Write: fmt.Sprint(id)}
	b.attempts = append(b.attempts, a)
	u.attempts = append(u.attempts, a)
	m := message{Turn: u.turn, Role: integrity.Question, Write: fmt.Sprint(id), Fence: fence}
	answer := m
	answer.Role, answer.Seen = integrity.Answer, seen
	return []message{m, answer}
}

// died is a fail-over: all that is behind last was not replicated.
func (b *book) died(at, fence, n int64) {
	b.failovers = append(b.failovers, failover{killed: at, last: map[string]place{"talk": {fence, n}}})
}

func (b *book) judged(stored ...[]message) string {
	var all []message
	for _, s := range stored {
		all = append(all, s...)
	}
	b.findings = nil
	kinds := map[integrity.Kind]int{}
	for _, f := range b.judgeTalk(&b.v, b.s, all) {
		kinds[f.Kind]++
	}
	for _, f := range b.findings {
		kinds[f.kind]++
	}
	return fmt.Sprintf("%v, %d forgotten, %d restored, %d outlived", kinds, b.v.forgotten, b.v.restored, b.v.outlived)
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What was acknowledged and is missing is lost, whatever died, unless the master died after it was sent, and its place is behind
// what the replica had.
func TestJudge_tellsForgottenFromLost(t *testing.T) {
	for name, test := range map[string]struct {
		killed, fence, n int64
		want             string
	}{
		"behind the replica's end":         {2100, 10, 1, "map[], 1 forgotten, 0 restored, 0 outlived"},
		"behind it, the token was shown":   {2100, 20, 0, "map[], 1 forgotten, 0 restored, 0 outlived"},
		"the replica had it":               {2100, 20, 1, "map[lost:1], 0 forgotten, 0 restored, 0 outlived"},
		"the replica had a later one":      {2100, 25, 0, "map[lost:1], 0 forgotten, 0 restored, 0 outlived"},
		"the master was dead when it came": {1900, 10, 1, "map[lost:1], 0 forgotten, 0 restored, 0 outlived"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			first := b.turn(10, 1000, 0)
			b.turn(20, 2000, 2)
			third := b.turn(30, 3000, 2)
			b.died(test.killed, test.fence, test.n)
			expect(t, b.judged(first, third), test.want)
		})
	}
	t.Run("nobody died", func(t *testing.T) {
		b := newBook(t)
		first := b.turn(10, 1000, 0)
		b.turn(20, 2000, 2)
		expect(t, b.judged(first), "map[lost:1], 0 forgotten, 0 restored, 0 outlived")
	})
	t.Run("another session's master died", func(t *testing.T) {
		b := newBook(t)
		b.turn(20, 2000, 0)
		b.failovers = []failover{{killed: 2100, last: map[string]place{"other": {}}}}
		expect(t, b.judged(), "map[lost:1], 0 forgotten, 0 restored, 0 outlived")
	})
}

// A message that is handed out again, and whose turn the server forgot, is stored again, once, behind what was answered meanwhile.
func TestJudge_letsForgottenTurnsBeStoredAgain(t *testing.T) {
	b := newBook(t)
	first := b.turn(10, 1000, 0)
	b.turn(20, 2000, 2)
	third := b.turn(30, 3000, 2)
	b.died(2100, 10, 1)
	again := b.attempt(b.all[1], 40, 4000, 4)
	expect(t, b.judged(first, third, again), "map[], 0 forgotten, 1 restored, 0 outlived")
	b.v = verdict{}
	expect(t, b.judged(first, third, again, again), "map[doubled:1], 0 forgotten, 1 restored, 0 outlived")
}

// Who has loaded from the master that died, and saves to the next one, has seen what is gone. Who loads after that has not.
func TestJudge_knowsWhoHasOutlivedTheMaster(t *testing.T) {
	b := newBook(t)
	first := b.turn(10, 1000, 0)
	b.turn(20, 2000, 2)
	b.died(2498, 10, 1)
	outlived := b.turn(25, 2500, 4) // loaded at 2495
	expect(t, b.judged(first, outlived), "map[], 1 forgotten, 0 restored, 1 outlived")
	after := b.turn(30, 3000, 6)
	b.v = verdict{}
	expect(t, b.judged(first, outlived, after), "map[stale:1], 1 forgotten, 0 restored, 1 outlived")
}
