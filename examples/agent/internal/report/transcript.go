package report

import (
	"slices"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/internal/test/conversation"
)

// Line is a message of a transcript.
type Line struct {
	history.Message
	Missing bool                   // the message is lost: the line stands where the message should stand
	Wrong   []conversation.Finding // empty if the message is as it should be
}

// Transcript returns a conversation as it is stored in the end, with the findings about each
// message.
func (r *Result) Transcript(session int) (lines []Line) {
	stored := r.Histories[session]
	for _, m := range stored {
		lines = append(lines, Line{Message: m})
	}
	for _, f := range r.Reports[session] {
		for _, place := range wrong(stored, f) {
			lines[place].Wrong = append(lines[place].Wrong, f)
		}
	}
	for _, f := range r.Reports[session] { // only now, because places count stored messages
		if f.Kind == conversation.Lost {
			lines = withMissing(lines, f)
		}
	}
	return lines
}

// wrong returns the places of the messages that a finding blames: of a stale turn the answer, and
// of a doubled one each copy.
func wrong(stored []history.Message, f conversation.Finding) (places []int) {
	first := map[string]bool{}
	for _, place := range f.Places {
		m := stored[place]
		original := !first[m.Role]
		first[m.Role] = true
		switch {
		case m.Turn != f.Turn:
		case f.Kind == conversation.Stale && m.Role == "user":
		case f.Kind == conversation.Doubled && original:
		default:
			places = append(places, place)
		}
	}
	return places
}

// withMissing inserts the messages of a lost turn that are not stored: beside the part that is
// stored, or before the first later turn.
func withMissing(lines []Line, lost conversation.Finding) []Line {
	find := func(role string) int {
		return slices.IndexFunc(lines, func(l Line) bool { return l.Turn == lost.Turn && l.Role == role })
	}
	insert := func(at int, role string) {
		lines = slices.Insert(lines, at, Line{history.Message{Role: role, Turn: lost.Turn}, true, []conversation.Finding{lost}})
	}
	question, answer := find("user"), find("assistant")
	switch {
	case question < 0 && answer < 0:
		question = slices.IndexFunc(lines, func(l Line) bool { return l.Turn > lost.Turn })
		if question < 0 {
			question = len(lines)
		}
		insert(question, "user")
		insert(question+1, "assistant")
	case question < 0:
		insert(answer, "user")
	case answer < 0:
		insert(question+1, "assistant")
	}
	return lines
}
