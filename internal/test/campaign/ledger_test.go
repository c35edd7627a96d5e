package campaign

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

type ledger struct {
	c *campaign

	mu       sync.Mutex
	sessions map[string][]*attempt
	judging  sync.Mutex
}

func newLedger(c *campaign) *ledger { return &ledger{c: c, sessions: make(map[string][]*attempt)} }

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
	l.c.count("attempts: "+string(a.End), 1)
	if a.Past || a.Kind == aStrayWrite {
		l.c.count("writes past all checks: "+string(a.End), 1)
	} else if a.acknowledged() {
		l.c.count("acknowledged: "+string(a.Kind), 1)
	}
}

// judgeUntil judges the sessions whose time was over before a moment; in the end all of them.
func (l *ledger) judgeUntil(moment int64, last bool) {
	l.judging.Lock()
	defer l.judging.Unlock()
	l.mu.Lock()
	var due []string
	for session := range l.sessions {
		if last || epochOf(session) < epoch(moment, l.c.start, l.c.plan.rotate) {
			due = append(due, session)
		}
	}
	l.mu.Unlock()
	if len(due) == 0 {
		return
	}
	read, closing := l.reader()
	defer closing()
	for _, session := range due {
		stored, err := read(session)
		if err != nil && !last {
			continue // later
		}
		l.mu.Lock()
		v := &verdict{c: l.c, session: session, stored: stored, attempts: slices.Clone(l.sessions[session])}
		delete(l.sessions, session)
		l.mu.Unlock()
		if err != nil {
			l.c.blame(&finding{kind: "failure", at: now(), text: "reading a session in the end: " + err.Error()})
			continue
		}
		v.judge()
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
		stored, err := read(session)
		if err != nil {
			continue // it is judged in the end, without the data of this time
		}
		l.mu.Lock()
		v := &verdict{c: l.c, session: session, stored: stored, attempts: soFar(l.sessions[session], moment), again: true}
		l.mu.Unlock()
		v.judge()
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

func (l *ledger) reader() (read func(string) ([]message, error), closing func()) {
	store, closing, err := l.c.store()
	if err != nil {
		l.c.t.Fatal(err)
	}
	return func(session string) (stored []message, err error) {
		for range 3 {
			ctx, cancel := context.WithTimeout(lockedmemory.WithSession(context.Background(), session), 5*time.Second)
			stored, err = store.Load(ctx, "")
			if cancel(); err == nil {
				break
			}
		}
		return stored, err
	}, closing
}

type verdict struct {
	c        *campaign
	session  string
	stored   []message
	attempts []*attempt
	again    bool // it will be judged once more

	writes map[string]bool // that stand there
	turns  map[int]int     // and how often
}

func (v *verdict) blame(kind string, at int64, turn int, format string, args ...any) {
	v.c.blame(&finding{kind: kind, key: v.session, at: at, text: v.session + ": " + fmt.Sprintf(format, args...) + v.story(turn)})
}

func (v *verdict) excuse(kind string, f *fault) {
	if v.again {
		return
	}
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	v.c.stat(f).apart[kind]++
}

func (v *verdict) judge() {
	if strings.Contains(v.session, "/talk-") {
		v.talk()
	} else {
		v.notes()
	}
}

// look finds out what stands there, and checks what holds of all sessions.
func (v *verdict) look() {
	v.writes, v.turns = make(map[string]bool), make(map[int]int)
	last := int64(0)
	for i, m := range v.stored {
		if m.Role != conversation.Answer {
			continue
		}
		v.writes[m.Write] = true
		v.turns[m.Turn]++
		if m.Fence != 0 && m.Fence < last {
			v.blame("S2", now(), m.Turn, "turn %d, at %d, was saved under token %d, behind one that was saved under %d", m.Turn, i, m.Fence, last)
		}
		last = max(last, m.Fence)
	}
	v.c.count("exchanges that stood there", len(v.writes))
	v.fenced()
}

// fenced checks that the store accepted no write that was sent after a Load with a higher token. A
// server that lost that Load cannot refuse.
func (v *verdict) fenced() {
	for _, a := range v.attempts {
		if a.Sent == 0 || a.Mine == 0 || a.End == found || a.Kind == aSave || a.Kind == aClear {
			continue
		}
		if a.End != saved && !(a.Write != "" && v.writes[a.Write]) {
			continue
		}
		for _, b := range v.attempts {
			if b.Mine > a.Mine && b.Loaded != 0 && b.Loaded < a.Sent && v.c.windows.forgot(v.session, position{b.Mine, 0}, b.Asked, b.Loaded) == nil {
				v.blame("S2", a.Sent, a.Turn, "a write under token %d was let in, %s after run %d had loaded under %d",
					a.Mine, time.Duration(a.Sent-b.Loaded), b.Run, b.Mine)
				break
			}
		}
	}
}

func (v *verdict) talk() {
	v.look()
	messages := make([]conversation.Message, len(v.stored))
	for i, m := range v.stored {
		messages[i] = conversation.Message{Turn: m.Turn, Role: m.Role, Writer: "ledger", Write: m.Write, Seen: m.Seen}
		if m.Role == conversation.Answer && m.Seen != i-1 {
			if f := v.hasOutlived(m); f != nil {
				v.excuse("stale", f)
				messages[i].Seen = i - 1
			} else if m.Turn >= strays {
				messages[i].Seen = i - 1 // no answer to anything, see fenced
			}
		}
	}
	var attempts []conversation.Attempt
	for _, a := range v.attempts {
		if a.Kind != aTurn {
			continue
		}
		if v.writes[a.Write] && (a.End == held || a.End == refused) && a.Write == a.own() {
			v.blame("failure", a.Ended, a.Turn, "turn %d is stored, and its writer was told that it is not", a.Turn)
		}
		if a.acknowledged() && !v.writes[a.Write] {
			if f := v.c.windows.forgot(v.session, a.position(), a.Sent, a.Done); f != nil {
				v.excuse("lost", f)
				continue
			}
		}
		attempts = append(attempts, conversation.Attempt{
			Turn: a.Turn, Writer: "ledger", Acknowledged: a.acknowledged(), Begun: a.Begun, Ended: a.Ended,
		})
	}
	for _, f := range conversation.Judge(messages, attempts) {
		kind := string(f.Kind)
		if f.Kind == conversation.OutOfOrder {
			kind = "O"
		}
		// Whether a fault is to blame was asked for each turn above.
		v.c.blame(&finding{kind: kind, key: v.session, at: v.when(f.Turn), never: true, text: v.session + ": " + f.String() + v.story(f.Turn)})
	}
}

// position is that of the acknowledged entry; zero for a Save outside turns.
func (a *attempt) position() position {
	switch {
	case a.Kind == aTurnClear:
		return position{a.Mine, 1}
	case a.Fence != 0:
		return position{a.Fence, 1}
	}
	return position{}
}

func (a *attempt) own() string { return fmt.Sprint(a.Run, "-", a.Begun) }

// hasOutlived returns the fault in which a server has lost the turns behind an answer.
func (v *verdict) hasOutlived(m message) *fault {
	for _, a := range v.attempts {
		if a.Loaded != 0 && a.own() == m.Write {
			return v.c.windows.forgot(v.session, position{m.Fence, 1}, a.Asked, a.Loaded)
		}
	}
	// Its writer was killed before it could tell. It has loaded after its token was granted, which
	// is the time of that, in microseconds.
	return v.c.windows.forgot(v.session, position{m.Fence, 1}, m.Fence*1000, math.MaxInt64)
}

func (v *verdict) when(turn int) int64 {
	for _, a := range v.attempts {
		if a.Turn == turn {
			return a.Ended
		}
	}
	return now()
}

// story is what the ledger knows of a turn, for people who look for what has happened to it.
func (v *verdict) story(turn int) string {
	var text strings.Builder
	for _, a := range v.attempts {
		if a.Turn == turn || (a.Kind == aClear || a.Kind == aTurnClear) && strings.Contains(v.session, "notes") {
			fmt.Fprintf(&text, "\n\t%+v, in a run since %d", *a, v.c.start)
		}
	}
	return text.String()
}

// notes judges a session with Clears, in which no message depends on earlier ones.
func (v *verdict) notes() {
	v.look()
	for i := 0; i < len(v.stored); i++ {
		m := v.stored[i]
		if m.Role == conversation.Question && i+1 < len(v.stored) && v.stored[i+1].Turn == m.Turn && v.stored[i+1].Role == conversation.Answer {
			i++
			continue
		}
		v.blame("torn", now(), m.Turn, "the message of turn %d, at %d, stands alone", m.Turn, i)
	}
	for turn, times := range v.turns {
		if times > 1 {
			v.blame("doubled", v.when(turn), turn, "turn %d is stored %d times", turn, times)
		}
	}
	seen, stood := make(map[int]bool), make(map[int]bool)
	for _, a := range v.attempts {
		if a.Kind == aClear || a.Kind == aTurnClear || a.Kind == aStrayWrite {
			continue
		}
		stands := v.turns[a.Turn] > 0
		// A note that a server lost may have been repeated since.
		if stands && a.acknowledged() && !stood[a.Turn] && v.c.windows.forgot(v.session, a.position(), a.Sent, a.Done) == nil {
			stood[a.Turn] = v.survived(a)
		}
		if stands || !a.acknowledged() || seen[a.Turn] || v.clearedBy(a) {
			continue
		}
		seen[a.Turn] = true
		if f := v.c.windows.forgot(v.session, a.position(), a.Sent, a.Done); f != nil {
			v.excuse("lost", f)
			continue
		}
		v.c.blame(&finding{kind: "lost", key: v.session, at: a.Done, never: true, text: fmt.Sprintf(
			"%s: turn %d was acknowledged, no Clear came since, and it is gone%s", v.session, a.Turn, v.story(a.Turn))})
	}
}

// clearedBy reports whether some Clear may have worked after a note's first Save began.
func (v *verdict) clearedBy(a *attempt) bool {
	first := a.Sent
	for _, b := range v.attempts {
		if b.Turn == a.Turn && b.Sent != 0 {
			first = min(first, b.Sent)
		}
	}
	for _, b := range v.attempts {
		clears := (b.Kind == aClear || b.Kind == aTurnClear) && b.Sent != 0 && b.End != refused && b.End != held
		if clears && (b.End == unknown || b.Done > first) {
			return true
		}
	}
	return false
}

// survived checks that a note does not stand there behind a Clear that began when the note's Save
// had ended, or whose token is higher. It reports whether it does, rightly or not.
func (v *verdict) survived(a *attempt) (survived bool) {
	for _, b := range v.attempts {
		later := a.Done < b.Sent || a.Mine != 0 && b.Mine > a.Mine
		if b.Kind != aClear && b.Kind != aTurnClear || b.End != saved || !later {
			continue
		}
		survived = true
		if v.c.windows.forgot(v.session, b.position(), b.Sent, b.Done) == nil {
			v.blame("O", a.Done, a.Turn, "turn %d stands there, and was cleared by run %d, at %s",
				a.Turn, b.Run, time.Duration(b.Sent-v.c.start))
			break
		}
	}
	return survived
}

// position is the place of an entry in its session. Positions only rise: a missing entry before a
// replicated one is lost. The zero position is unknown.
type position struct{ fence, n int64 }

func (p position) behind(q position) bool {
	return p.fence > q.fence || p.fence == q.fence && p.n > q.n
}

func sessionKeyOf(session string) string { return "session:" + redislock.HashTag(session) + "log" }

// kept asks each replica of a dead master for the last entry of every session, before any replica is
// promoted. The answers of a replica that was asked too late are left out.
func (c *campaign) kept(replicas []*servers.Redis) map[*servers.Redis]map[string]position {
	kept := make(map[*servers.Redis]map[string]position)
	for _, replica := range replicas {
		servers.Within(missed, func() bool { return replica.Info("master_link_status") == "down" })
		last, err := c.lastOf(replica, c.ledger.inUse())
		if role := replica.Info("role"); err != nil || role != "slave" {
			c.say("%s does not tell what it has kept: role %s, %v", replica.Addr(), role, err)
			continue
		}
		kept[replica] = last
	}
	return kept
}

// inUse are the sessions that have entries which are not judged yet, or will soon have.
func (l *ledger) inUse() (sessions []string) {
	this := epoch(now(), l.c.start, l.c.plan.rotate)
	for _, e := range []int{this, this + 1} {
		for n := range talks {
			sessions = append(sessions, talkOf(e, n), noteOf(e, n))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for session := range l.sessions {
		sessions = append(sessions, session)
	}
	return sessions
}

// lastOf asks one node for the last entries of sessions. Those of other masters are left out.
func (c *campaign) lastOf(node *servers.Redis, sessions []string) (map[string]position, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	if c.service.Cluster != nil {
		if err := conn.ReadOnly(ctx).Err(); err != nil {
			return nil, err
		}
	}
	cmds := make(map[string]*redis.XMessageSliceCmd)
	_, _ = conn.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for _, session := range sessions {
			cmds[session] = pipe.XRevRangeN(ctx, sessionKeyOf(session), "+", "-", 1)
		}
		return nil
	})
	last := make(map[string]position)
	for session, cmd := range cmds {
		entries, err := cmd.Result()
		switch {
		case redis.HasErrorPrefix(err, "MOVED"):
			continue
		case err != nil:
			return nil, err
		}
		var at position
		if len(entries) > 0 {
			_, _ = fmt.Sscanf(entries[0].ID, "%d-%d", &at.fence, &at.n)
		}
		last[session] = at
	}
	return last, nil
}

// savedTurn is a turn that was acknowledged: saved under a token, at a time, after a Load 5 before.
func savedTurn(turn int, fence, at int64, seen int) (a *attempt, pair []message) {
	a = &attempt{
		Run: 1, Session: "e0/talk-0", Kind: aTurn, Turn: turn, Fence: fence, Mine: fence, End: saved,
		Begun: at - 10, Asked: at - 5, Loaded: at - 4, Sent: at, Done: at + 1, Ended: at + 10,
	}
	a.Write = a.own()
	question, answer := exchange(turn, a.Write, fence, seen)
	return a, []message{question, answer}
}

// The rules are those of docs/design/campaign.md, Forgotten turns. A lost message that is delivered
// again is stored again, once.
func TestJudge_tellsForgottenFromLost(t *testing.T) {
	type turn struct {
		a    *attempt
		pair []message
	}
	turns := make(map[rune]turn)
	for name, of := range map[rune][4]int{
		'1': {1, 10, 1000, 0}, '2': {2, 20, 2000, 2}, '3': {3, 30, 3000, 2},
		'a': {2, 40, 4000, 4},                        // turn 2 again
		'o': {3, 25, 2500, 4}, 'l': {4, 30, 3000, 6}, // loaded at 2495, and later
		's': {3, 10, 3000, 4}, // under an old token
	} {
		a, pair := savedTurn(of[0], int64(of[1]), int64(of[2]), of[3])
		turns[name] = turn{a, pair}
	}
	kept := func(fence, n int64) map[string]position { return map[string]position{"e0/talk-0": {fence, n}} }
	const none, lost, forgotten = "0, apart 0", "1 (1 lost), apart 0", "0, apart 1 (1 lost)"
	for _, test := range []struct {
		name          string
		after, killed int64
		kept          map[string]position
		saved, stored string
		want          string
	}{
		{"all is there", 0, 0, nil, "12", "12", none},
		{"nothing died", 0, 0, nil, "12", "1", lost},
		{"forgotten by its time", 1500, 2500, nil, "12", "1", forgotten},
		{"answered before the cut", 2500, 3500, nil, "12", "1", lost},
		{"sent after the kill", 500, 1500, nil, "12", "1", lost},
		{"seen by a lost turn", 500, 1500, nil, "12", "2", "1 (1 stale), apart 1 (1 lost)"},
		{"a stale write", 0, 0, nil, "12s", "12s", "2 (2 S2), apart 0"},
		{"behind the replica's end", 2000, 2100, kept(10, 1), "123", "13", forgotten},
		{"behind it, the token was shown", 2000, 2100, kept(20, 0), "123", "13", forgotten},
		{"behind it, long before the master died", 2800, 2900, kept(10, 1), "123", "13", forgotten},
		{"the replica had it", 2000, 2100, kept(20, 1), "123", "13", lost},
		{"the replica had it, just before the master died", 1900, 2001, kept(20, 1), "123", "13", lost},
		{"the replica had a later one", 2000, 2100, kept(25, 0), "123", "13", lost},
		{"the master was dead when it came", 1800, 1900, kept(10, 1), "123", "13", lost},
		{"another session was asked for", 2800, 2900, map[string]position{"e0/talk-1": {}}, "123", "13", lost},
		{"stored again", 2000, 2100, kept(10, 1), "123a", "13a", forgotten},
		{"stored again twice", 2000, 2100, kept(10, 1), "123a", "13aa", "1 (1 doubled), apart 1 (1 lost)"},
		{"outlived the master", 2400, 2498, kept(10, 1), "12o", "1o", "0, apart 2 (1 lost, 1 stale)"},
		{"loaded after that", 2400, 2498, kept(10, 1), "12ol", "1ol", "1 (1 stale), apart 2 (1 lost, 1 stale)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			if test.killed != 0 {
				w := c.windows.open(serverFaults[0], 0, 0)
				c.windows.forget(w, test.after, test.killed)
				c.windows.kept(w, test.kept)
			}
			v := &verdict{c: c, session: "e0/talk-0"}
			for _, name := range test.saved {
				v.attempts = append(v.attempts, turns[name].a)
			}
			for _, name := range test.stored {
				v.stored = append(v.stored, turns[name].pair...)
			}
			v.talk()
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
