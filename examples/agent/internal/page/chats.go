package page

import (
	"fmt"
	"slices"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/internal/test/conversation"
)

// excerpt is how many messages of a conversation the page shows.
const excerpt = 10

// chats are the same part of one conversation as the runs have stored it, side by side.
type chats struct {
	Number  int // of the conversation, from 1
	Columns []chat
}

// chat is a part of a conversation in one run.
type chat struct {
	Name     report.Locked
	From, To int // places in the stored conversation, from 1
	Stored   int
	Bubbles  []bubble
	Wrong    int // bubbles with a mark
}

// bubble is a message, and its damage.
type bubble struct {
	history.Message
	Marks []report.Kind
}

// Number is that of the user's message, from 1.
func (b bubble) Number() int { return b.Turn + 1 }

// chatsOf shows the part with the most kinds of damage.
func chatsOf(c *report.Comparison) *chats {
	var shown *chats
	most := -1
	for session := range c.Sessions {
		least := len(c.Runs[0].Histories[session])
		for _, r := range c.Runs {
			least = min(least, len(r.Histories[session]))
		}
		for from := 0; from == 0 || from+excerpt <= least; from += 2 { // mostly a question
			part, kinds := &chats{Number: session + 1}, 0
			for _, r := range c.Runs {
				column, damage := chatOf(r, session, from)
				part.Columns = append(part.Columns, column)
				kinds += damage
			}
			if kinds > most {
				shown, most = part, kinds
			}
		}
	}
	return shown
}

// chatOf shows messages of a conversation, and counts their kinds of damage.
func chatOf(r *report.Result, session, from int) (c chat, kinds int) {
	stored := r.Histories[session]
	to := min(from+excerpt, len(stored))
	c = chat{Name: r.Locked, From: from + 1, To: to, Stored: len(stored)}
	for _, m := range stored[from:to] {
		c.Bubbles = append(c.Bubbles, bubble{Message: m})
	}
	for _, kind := range report.Kinds {
		found := false
		for _, f := range r.Reports[session] {
			if f.Kind != kind.Kind {
				continue
			}
			for _, place := range f.Places {
				if place < from || place >= to {
					continue
				}
				b := &c.Bubbles[place-from]
				if b.Turn != f.Turn || kind.Kind == conversation.Stale && b.Role == "user" {
					continue // another turn, or a question, is part of the finding, but not wrong
				}
				if kind.Kind == conversation.Stale {
					kind.Meaning = fmt.Sprintf("the model saw %d messages, %d stand before the question", b.Seen, slices.Min(f.Places))
				}
				b.Marks = append(b.Marks, kind)
				found = true
			}
		}
		if found {
			kinds++
		}
	}
	for _, b := range c.Bubbles {
		if len(b.Marks) > 0 {
			c.Wrong++
		}
	}
	return c, kinds
}
