package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/internal/integrity"
)

// Kinds of findings, besides those of package integrity.
const (
	letIn   integrity.Kind = "let in" // a write under an old token
	failure integrity.Kind = "failure"
)

// finding is one thing that is wrong.
type finding struct {
	kind integrity.Kind
	text string
}

func (c *campaign) blame(kind integrity.Kind, format string, args ...any) {
	c.findings = append(c.findings, finding{kind, fmt.Sprintf(format, args...)})
}

// verdict is what the sessions look like in the end.
type verdict struct {
	stored  int // turns
	unknown struct{ stored, not int }

	forgotten int           // turns that the server forgot, and that nobody has handed out again since
	restored  int           // turns that it forgot, and that were stored again
	oldest    time.Duration // before the master was dead, the first of those was sent
	strayed   int           // turns that a master took that was none any more
	outlived  int           // answers from a history that the server forgot
	past      struct{ refused, loadedOnly, unopposed, outlived, unknown int }
	notes     notesVerdict
}

// ledger is the writer of all messages for package integrity: the order of acknowledgements holds across instances.
const ledger = "ledger"

// forgot returns the fail-over in which the server has forgotten an entry: one that was there when the call was answered which was sent
// at the time asked.
func (c *campaign) forgot(session string, fence, asked int64) *failover {
	for i := range c.failovers {
		f := &c.failovers[i]
		if last, ok := f.last[session]; ok && asked < f.killed && (place{fence, 1}).behind(last) {
			return f
		}
	}
	return nil
}

// strayed reports whether an attempt has worked on a master that came back empty, and was none any more: it has found fewer messages than
// the new one had kept.
func (c *campaign) strayed(s *session, a *attempt, stored []message) bool {
	if a.loaded == nil {
		return false
	}
	for _, f := range c.failovers {
		last, ok := f.last[s.name]
		if !ok || a.loaded.Asked < f.back || a.loaded.Asked > f.over {
			continue
		}
		kept := 0
		for _, m := range stored {
			if !(place{m.Fence, 1}).behind(last) {
				kept++
			}
		}
		if a.loaded.Count < kept {
			return true
		}
	}
	return false
}

// judge reads all sessions.
func (c *campaign) judge() *verdict {
	v := &verdict{}
	read, closing := c.reader()
	defer closing()
	for _, s := range c.sessions {
		stored, err := read(s.name)
		if err != nil {
			c.blame(failure, "reading %s: %v", s.name, err)
			continue
		}
		var report integrity.Report
		if s.notes {
			report = c.judgeNotes(v, s, stored)
		} else {
			report = c.judgeTalk(v, s, stored)
		}
		for _, f := range report {
			c.blame(f.Kind, "%s: %s%s", s.name, f, c.story(s, f.Turn))
		}
	}
	c.judgePast(v)
	return v
}

// reader reads sessions as they are stored.
func (c *campaign) reader() (read func(session string) ([]message, error), closing func()) {
	config := config{Addrs: c.service.addrs, MasterName: c.service.masterName, TTL: c.plan.ttl, Broken: c.plan.broken}
	client := config.client()
	var i instance
	if err := i.open(&config, client); err != nil {
		c.t.Fatal(err)
	}
	return func(session string) ([]message, error) {
			ctx, cancel := context.WithTimeout(withSession(context.Background(), session), 30*time.Second)
			defer cancel()
			return i.store.Load(ctx, "")
		}, func() {
			_ = i.locker.Close(context.Background())
			_ = client.Close()
		}
}

// unitsOf are the messages of a session, by their turns.
func (c *campaign) unitsOf(s *session) map[int]*unit {
	units := make(map[int]*unit)
	for _, u := range c.all {
		if u.session == s {
			units[u.turn] = u
		}
	}
	return units
}

// judgeTalk judges a session with turns.
func (c *campaign) judgeTalk(v *verdict, s *session, stored []message) integrity.Report {
	units := c.unitsOf(s)
	standing := make(map[int]bool)
	writes := make(map[string]bool)
	messages := make([]integrity.Message, len(stored))
	for i, m := range stored {
		messages[i] = integrity.Message{Turn: m.Turn, Role: m.Role, Writer: ledger, Write: m.Write, Seen: m.Seen}
		if m.Role == integrity.Answer {
			standing[m.Turn], writes[m.Write] = true, true
			switch {
			case m.Turn >= stray(0): // no answer to anything; see judgePast
				messages[i].Seen = i - 1
			case m.Seen != i-1 && c.hasOutlived(s, m, stored):
				v.outlived++
				messages[i].Seen = i - 1
			}
		}
	}
	c.inOrderOfLeases(s, stored)
	v.stored += len(standing)

	var attempts []integrity.Attempt
	for _, u := range units {
		forgotten, strayed := false, false
		for _, a := range u.attempts {
			if a.outcome() == unknown {
				if writes[fmt.Sprint(a.ID)] {
					v.unknown.stored++
				} else {
					v.unknown.not++
				}
			}
			if e := a.outcome(); writes[fmt.Sprint(a.ID)] && (e == held || e == refused || e == undone) {
				c.blame(failure, "%s: turn %d is stored, and its writer was told that it is not%s", s.name, u.turn, c.story(s, u.turn))
			}
			// Of one that was forgotten, nothing is known any more.
			if a.acknowledged() && !writes[a.done.Write] {
				if f := c.forgot(s.name, a.done.Fence, a.done.Asked); f != nil {
					forgotten = true
					v.oldest = max(v.oldest, time.Duration(f.killed-a.done.Asked))
					continue
				}
			}
			if a.acknowledged() && !writes[a.done.Write] && c.strayed(s, a, stored) {
				strayed = true
				continue
			}
			attempts = append(attempts, integrity.Attempt{
				Turn: u.turn, Writer: ledger, Acknowledged: a.acknowledged(), Begun: a.begun, Ended: a.ended,
			})
		}
		switch {
		case forgotten && standing[u.turn]:
			v.restored++
		case forgotten:
			v.forgotten++
		case strayed && !standing[u.turn]:
			v.strayed++
		}
	}
	return integrity.Judge(messages, attempts)
}

// hasOutlived reports whether an answer comes from a history that a master has taken with it.
func (c *campaign) hasOutlived(s *session, m message, stored []message) bool {
	id, err := strconv.Atoi(m.Write)
	if err != nil || id < 0 || id >= len(c.attempts) || c.attempts[id].loaded == nil {
		return false
	}
	return c.forgot(s.name, m.Fence, c.attempts[id].loaded.Asked) != nil || c.strayed(s, c.attempts[id], stored)
}

// inOrderOfLeases checks that what was saved in turns stands in the order of their tokens.
func (c *campaign) inOrderOfLeases(s *session, stored []message) {
	last := int64(0)
	for i, m := range stored {
		if m.Fence == 0 || m.Role != integrity.Answer {
			continue
		}
		if m.Fence < last {
			c.blame(integrity.OutOfOrder, "%s: turn %d, at %d, was saved under token %d, behind one that was saved under %d", s.name, m.Turn, i, m.Fence, last)
		}
		last = m.Fence
	}
}

// judgePast judges the writes past all checks. One that was made when somebody else had already loaded, under a higher token, must not
// have been let in, unless the server forgot that.
func (c *campaign) judgePast(v *verdict) {
	for _, w := range c.past {
		var by *hold
		for i, h := range w.by.of.session.holds {
			if h.by != w.by && h.time < w.Began && h.fence > w.Fence {
				by = &w.by.of.session.holds[i]
			}
		}
		switch {
		case w.End == refused:
			v.past.refused++
			if by != nil && (by.by.done == nil || by.by.done.Wrote == 0 || by.by.done.Wrote > w.Time) {
				v.past.loadedOnly++
			}
		case w.End == unknown:
			v.past.unknown++
		case by == nil:
			v.past.unopposed++
		case by.by.loaded != nil && c.forgot(w.by.Session, by.fence, by.by.loaded.Asked) != nil:
			v.past.outlived++
		default:
			c.blame(letIn, "%s: a write under token %d was let in, %s after somebody had loaded under %d: task %d", w.by.Session, w.Fence,
				time.Duration(w.Began-by.time), by.fence, w.by.ID)
		}
	}
}

// story is what the ledger knows of a turn, for people who look for what has happened to it.
func (c *campaign) story(s *session, turn int) string {
	var text strings.Builder
	at := func(t int64) time.Duration { return time.Duration(t - c.start).Round(time.Microsecond) }
	tell := func(u *unit) {
		for _, a := range u.attempts {
			fmt.Fprintf(&text, "\n\t%s %d (attempt %d, %q): from %s to %s: %s", u.kind, u.turn, a.ID, u.name, at(a.begun), at(a.ended), a.outcome())
			if a.loaded != nil {
				fmt.Fprintf(&text, ", loaded at %s under %d", at(a.loaded.Time), a.loaded.Fence)
			}
			if a.done != nil {
				fmt.Fprintf(&text, ", asked at %s, under %d, by %s %s", at(a.done.Asked), a.done.Fence, a.done.Write, a.done.Error)
			}
			if a.struck {
				fmt.Fprintf(&text, ", struck %s", a.Strike.At)
			}
		}
	}
	for _, u := range c.all {
		if u.session == s && (u.turn == turn || u.kind == aClear || u.kind == aTurnClear) {
			tell(u)
		}
	}
	for _, f := range c.failovers {
		if last, ok := f.last[s.name]; ok {
			fmt.Fprintf(&text, "\n\tthe master was dead at %s; the last entry is %d-%d", at(f.killed), last.fence, last.n)
		}
	}
	return text.String()
}
