package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// judged is a run of one conversation.
func judged(locked report.Locked, turns int, stored ...history.Message) *report.Result {
	r := &report.Result{Locked: locked}
	r.Judge(0, stored, turns)
	return r
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
			lines = append(lines, fmt.Sprintf("%d %s: %s: %s", i, b.Who, m.Word, m.Why))
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
			"3 Answer to message 2, b: stale: saw 0 of the 2 messages before it"}},
		"more than stored": {append(turn(0, "a", 0), turn(1, "b", 4)...), []string{
			"3 Answer to message 2, b: stale: saw 4 messages, but 2 stand before it"}},
		"doubled": {slices.Concat(turn(0, "a", 0), turn(0, "b", 2), turn(1, "a", 4)), []string{
			"2 Message 1: doubled: stored a second time", "3 Answer to message 1, b: doubled: stored a second time"}},
		"lost": {turn(0, "a", 0), []string{
			"2 Message 2: lost: acknowledged, but not stored", "3 Answer to message 2: lost: acknowledged, but not stored"}},
		"half lost": {append(turn(0, "a", 0), turn(1, "b", 2)[:1]...), []string{
			"2 Message 2: lost: question and answer are not both stored", "2 Message 2: torn: its answer does not follow",
			"3 Answer to message 2: lost: acknowledged, but not stored"}},
		"torn": {slices.Concat(turn(0, "a", 0)[:1], turn(1, "b", 1), turn(0, "a", 0)[1:]), []string{
			"0 Message 1: torn: its answer does not follow", "3 Answer to message 1, a: torn: does not follow its question"}},
	} {
		c := &report.Comparison{Sessions: 1, Turns: 2, NoLock: judged(report.NoLock, 2, test.stored...),
			SaveOnly: judged(report.SaveOnly, 2, right(2)...), WholeTurn: judged(report.WholeTurn, 2, right(2)...)}
		shown := chatsOf(c)
		if got := written(shown.Columns[0]); !slices.Equal(got, test.want) {
			t.Errorf("%s: the marks are\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
		if shown.Damaged != (len(test.want) > 0) {
			t.Errorf("%s: damaged is %t", name, shown.Damaged)
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
	c := &report.Comparison{Sessions: 1, Turns: 40, NoLock: judged(report.NoLock, 40, stale...),
		SaveOnly: judged(report.SaveOnly, 40, right(40)...), WholeTurn: judged(report.WholeTurn, 40, right(40)...)}
	for _, column := range chatsOf(c).Columns {
		if column.From > 62 || column.To < 62 || column.To-column.From+1 != excerpt || column.From%2 != 1 || !column.Bubbles[0].User {
			t.Errorf("%s shows messages %d to %d", column.Name, column.From, column.To)
		}
		if want := chatsOf(c).Columns[0].From; column.From != want {
			t.Errorf("%s begins at %d, want %d", column.Name, column.From, want)
		}
	}
}

func TestChats_needsMessages(t *testing.T) {
	c := &report.Comparison{Sessions: 1, NoLock: judged(report.NoLock, 0), SaveOnly: judged(report.SaveOnly, 0), WholeTurn: judged(report.WholeTurn, 0)}
	if chatsOf(c) != nil {
		t.Error("there is a chat without messages")
	}
}
