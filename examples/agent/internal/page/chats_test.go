package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// compared is three runs of one conversation, the first of which stored something else than the others.
func compared(turns int, first []history.Message) *report.Comparison {
	c := &report.Comparison{Plan: balancer.Plan{Sessions: 1, Turns: turns}}
	for i, stored := range [][]history.Message{first, right(turns), right(turns)} {
		c.Runs[i] = &report.Result{}
		c.Runs[i].Judge(stored, turns)
	}
	return c
}

// right is a conversation without damage.
func right(turns int) (stored []history.Message) {
	for n := range turns {
		stored = append(stored, turn(n, "instance-1", 2*n)...)
	}
	return stored
}

// written returns the marks of a chat, a line for each bubble that has one.
func written(c chat) (lines []string) {
	for i, b := range c.Bubbles {
		for _, m := range b.Marks {
			lines = append(lines, fmt.Sprintf("%d %s %d: %s: %s", i, b.Role, b.Number(), m.Kind, m.Meaning))
		}
	}
	return lines
}

func TestChats_marksEachWrongMessage(t *testing.T) {
	for name, test := range map[string]struct {
		stored []history.Message
		want   []string
	}{
		"right": {right(2), nil},
		"stale": {append(turn(0, "a", 0), turn(1, "b", 0)...), []string{
			"3 assistant 2: stale: the model saw 0 messages, 2 stand before the question"}},
		"more than stored": {append(turn(0, "a", 0), turn(1, "b", 4)...), []string{
			"3 assistant 2: stale: the model saw 4 messages, 2 stand before the question"}},
		"doubled": {slices.Concat(turn(0, "a", 0), turn(0, "b", 2), turn(1, "a", 4)), []string{
			"0 user 1: doubled: delivered twice, answered twice", "1 assistant 1: doubled: delivered twice, answered twice",
			"2 user 1: doubled: delivered twice, answered twice", "3 assistant 1: doubled: delivered twice, answered twice"}},
		"half lost": {append(turn(0, "a", 0), turn(1, "b", 2)[:1]...), []string{
			"2 user 2: lost: question or answer is not stored", "2 user 2: torn: answer not right after its question"}},
		"torn": {slices.Concat(turn(0, "a", 0)[:1], turn(1, "b", 1), turn(0, "a", 0)[1:]), []string{
			"0 user 1: torn: answer not right after its question", "3 assistant 1: torn: answer not right after its question"}},
	} {
		shown := chatsOf(compared(2, test.stored))
		if got := written(shown.Columns[0]); !slices.Equal(got, test.want) {
			t.Errorf("%s: the marks are\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
		wrong := map[byte]bool{}
		for _, line := range test.want {
			wrong[line[0]] = true
		}
		if n := shown.Columns[0].Wrong; n != len(wrong) {
			t.Errorf("%s: %d messages are wrong, want %d", name, n, len(wrong))
		}
		if got := written(shown.Columns[2]); got != nil || shown.Columns[2].Wrong != 0 {
			t.Errorf("%s: the last run has the marks %q", name, got)
		}
	}
}

func TestChats_showsTheSamePlaceOfAll(t *testing.T) {
	stale := right(40)
	stale[61].Seen = 0
	c := compared(40, stale)
	for _, column := range chatsOf(c).Columns {
		if column.From > 62 || column.To < 62 || column.To-column.From+1 != excerpt || column.Bubbles[0].Role != "user" {
			t.Errorf("%s shows messages %d to %d", column.Name, column.From, column.To)
		}
		if want := chatsOf(c).Columns[0].From; column.From != want {
			t.Errorf("%s begins at %d, want %d", column.Name, column.From, want)
		}
	}
}
