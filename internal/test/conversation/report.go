package conversation

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a way in which a turn can be wrong.
type Kind string

// The kinds; doc.go says what they stand for.
const (
	Lost       Kind = "lost"
	Torn       Kind = "torn"
	Doubled    Kind = "doubled"
	OutOfOrder Kind = "out of order"
	Stale      Kind = "stale"
)

// Finding is one thing that is wrong with one turn.
type Finding struct {
	Kind   Kind
	Turn   int
	Places []int  // where the messages stand that show it, counted from 0
	Text   string // says it to people, as in "answer at 7 had seen 4 messages, but 6 stand before its question"
}

// String returns a line such as "turn 3 is torn: question at 4, answer at 7".
func (f Finding) String() string { return fmt.Sprintf("turn %d is %s: %s", f.Turn, f.Kind, f.Text) }

// Report is all that is wrong with a conversation, by turn. It is empty if nothing is.
type Report []Finding

// Turns returns the turns with one of the kinds, or with any fault if no kind is given. Each is
// there once, the lowest first.
func (r Report) Turns(kinds ...Kind) (turns []int) {
	for _, f := range r {
		if len(kinds) == 0 || slices.Contains(kinds, f.Kind) {
			turns = append(turns, f.Turn)
		}
	}
	slices.Sort(turns)
	return slices.Compact(turns)
}

// String returns a line for each finding.
func (r Report) String() string {
	lines := make([]string, len(r))
	for i, f := range r {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}
