//go:build browser

package browsertest

import (
	"fmt"
	"slices"
	"strings"
)

var (
	kinds = []string{"lost", "torn", "stale", "doubled", "out of order"}
	runs  = []string{"no lock", "Save only", "whole turn"}
)

// chats wants that a message has a mark and a colour if and only if it is wrong, by the terminal's
// counts and by the numbers in the messages.
func chats(o *observation, r *run) []string {
	var p problems
	if len(o.Chats) != len(runs) {
		return []string{fmt.Sprintf("there are %d chats", len(o.Chats))}
	}
	for i, c := range o.Chats {
		p.add(c.Name == runs[i] && c.ID == fmt.Sprint("chat-", i) && c.Shown, "chat %d is %s, %q, shown: %t", i, c.ID, c.Name, c.Shown)
		p.add(len(c.Bubbles) > 0 && len(c.Bubbles) <= 10, "%s has %d messages", c.Name, len(c.Bubbles))
		wrong := 0
		for n, b := range c.Bubbles {
			p.add(b.Who != "" && b.Said != "", "message %d of %s says nothing", c.First+n, c.Name)
			if len(b.Whys) > 0 {
				wrong++
			}
			p.add(len(b.Marks) == len(b.Whys), "message %d of %s has words %q for %q", c.First+n, c.Name, b.Marks, b.Whys)
			for _, mark := range b.Marks {
				p.add(slices.Contains(kinds, mark), "message %d of %s has the mark %q", c.First+n, c.Name, mark)
				p.add(r.numbers(mark + ":")[i] > 0, "message %d of %s is %s, but the terminal counts none", c.First+n, c.Name, mark)
			}
		}
		says := "none wrong"
		if wrong > 0 {
			says = fmt.Sprintf("%d wrong", wrong)
		}
		p.add(strings.HasSuffix(c.About, ": "+says), "%s says %q, but %d messages have marks", c.Name, c.About, wrong)
		p = append(p, colours(c)...)
		p = append(p, totals(c)...)
	}
	p.add(len(o.Chats[2].Bubbles) == 0 || strings.HasSuffix(o.Chats[2].About, "none wrong"), "the run with whole turns says %q", o.Chats[2].About)
	return p
}

// colours wants that wrong messages look different from all others.
func colours(c chat) []string {
	var p problems
	right := map[string]bool{}
	for _, b := range c.Bubbles {
		if len(b.Whys) == 0 {
			right[b.Border], right[b.Ground] = true, true
		}
	}
	for n, b := range c.Bubbles {
		if len(b.Whys) > 0 {
			p.add(!right[b.Border] && !right[b.Ground], "message %d of %s is wrong, but has the colours of right ones", c.First+n, c.Name)
		}
	}
	return p
}

// totals wants that answers that are not stale have counted all books before them. All of them then
// agree on the number of books before the first message. It looks at answers that follow their
// question at once, because the others do not say which question they belong to.
func totals(c chat) []string {
	var p problems
	before, known := 0, false
	asked, question := 0, "" // the books of all questions so far; the last one, if it stands just before
	for n, b := range c.Bubbles {
		_, message, _ := strings.Cut(strings.ToLower(b.Who), "message ")
		message, _, _ = strings.Cut(message, ",")
		var books int
		if b.User {
			if _, err := fmt.Sscanf(b.Said, "Add %d books", &books); err == nil {
				asked, question = asked+books, message
			}
			continue
		}
		follows := question == message
		question = ""
		_, err := fmt.Sscanf(b.Said, "Your order has %d books", &books)
		if err != nil || !follows || slices.Contains(b.Marks, "stale") || slices.Contains(b.Marks, "torn") {
			continue
		}
		if !known {
			before, known = books-asked, true
		}
		p.add(books-asked == before, "message %d of %s counts %d books, want %d", c.First+n, c.Name, books, before+asked)
	}
	return p
}
