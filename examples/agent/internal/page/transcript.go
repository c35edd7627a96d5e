package page

import (
	"fmt"
	"slices"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/internal/test/conversation"
)

// excerpt is how many messages of a conversation the page shows.
const excerpt = 10

// chats are parts of one conversation as the runs have stored it, side by side.
type chats struct {
	Number  int // of the conversation, from 1
	Damaged bool
	Columns []chat
}

// chat is a part of a conversation in one run.
type chat struct {
	ID, Name string
	From, To int // places in the stored conversation, from 1
	Stored   int
	Bubbles  []bubble
	Wrong    int // bubbles with a mark
}

// bubble is a message with its marks.
type bubble struct {
	User    bool
	Who     string
	Text    string
	Missing bool
	Marks   []mark
}

// mark is the damage of a message: one word for its kind, and the reason in a few words.
type mark struct{ Word, Why string }

// chatsOf shows the part with the most kinds of damage, at the same places in each run. It is nil
// if a run stored nothing.
func chatsOf(c *report.Comparison) *chats {
	runs := c.Runs()
	best, session, start := -1, 0, 0
	for s := range c.Sessions {
		var lines [][]report.Line
		for _, r := range runs {
			lines = append(lines, r.Transcript(s))
		}
		least := slices.MinFunc(lines, func(a, b []report.Line) int { return len(a) - len(b) })
		for from := 0; from == 0 || from+excerpt <= len(least); from++ {
			if n := damage(lines, from); n > best && (from == 0 || questions(lines, from)) {
				best, session, start = n, s, from
			}
		}
	}
	shown := &chats{Number: session + 1, Damaged: best > 0}
	for _, r := range runs {
		lines := r.Transcript(session)
		if len(lines) == 0 {
			return nil
		}
		shown.Columns = append(shown.Columns, chatOf(r, lines, start))
	}
	return shown
}

// questions reports whether each part begins with a question.
func questions(runs [][]report.Line, from int) bool {
	return !slices.ContainsFunc(runs, func(lines []report.Line) bool { return lines[from].Role != "user" })
}

// damage counts each kind of damage in the part of a run ten times as much as each further message
// with it.
func damage(runs [][]report.Line, from int) (n int) {
	for _, lines := range runs {
		seen := map[conversation.Kind]bool{}
		for _, l := range part(lines, from) {
			for _, f := range l.Wrong {
				n++
				if !seen[f.Kind] {
					n, seen[f.Kind] = n+10, true
				}
			}
		}
	}
	return n
}

func part(lines []report.Line, from int) []report.Line {
	return lines[min(from, len(lines)):min(from+excerpt, len(lines))]
}

func chatOf(r *report.Result, lines []report.Line, from int) chat {
	shown := part(lines, from)
	c := chat{ID: "chat-" + string(r.Locked), Name: r.Locked.Name(), From: from + 1, To: from + len(shown), Stored: len(lines)}
	for _, l := range shown {
		b := bubble{User: l.Role == "user", Who: fmt.Sprintf("Message %d", l.Turn+1), Text: l.Text, Missing: l.Missing}
		if !b.User {
			b.Who = fmt.Sprintf("Answer to message %d", l.Turn+1)
		}
		switch {
		case l.Missing:
			b.Text = "not stored"
		case !b.User:
			b.Who += ", " + l.Instance
		}
		for _, f := range l.Wrong {
			m := mark{string(f.Kind), why(l, f)}
			if !slices.ContainsFunc(b.Marks, func(other mark) bool { return other.Word == m.Word }) {
				b.Marks = append(b.Marks, m)
			}
		}
		if len(b.Marks) > 0 {
			c.Wrong++
		}
		c.Bubbles = append(c.Bubbles, b)
	}
	return c
}

// why is the reason of a finding in a few words.
func why(l report.Line, f conversation.Finding) string {
	switch f.Kind {
	case conversation.Stale:
		before := slices.Min(f.Places)
		if l.Seen < before {
			return fmt.Sprintf("saw %d of the %d messages before it", l.Seen, before)
		}
		return fmt.Sprintf("saw %d messages, but %d stand before it", l.Seen, before)
	case conversation.Doubled:
		return "stored a second time"
	case conversation.Torn:
		if l.Role == "user" {
			return "its answer does not follow"
		}
		return "does not follow its question"
	case conversation.Lost:
		if l.Missing {
			return "acknowledged, but not stored"
		}
		return "question and answer are not both stored"
	case conversation.OutOfOrder:
		return "stands before an earlier message"
	}
	return f.Text
}
