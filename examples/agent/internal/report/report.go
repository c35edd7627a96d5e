// Package report shows people what became of conversations, with and without a lock.
package report

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

// Result is what became of a run. The numbers count messages of users; what went wrong with one of them may be more than
// one thing.
type Result struct {
	Messages int
	Lost     int // question or answer is not stored
	Torn     int // the answer does not follow its question at once
	Stale    int // the model was not shown all that stands before the question
	Doubled  int // answered more than once
	Damaged  int // any of these

	Took  time.Duration
	Spans []spans.Span
}

// Judge adds what became of a conversation: of the user's messages 0 to turns-1, by what is stored in the end.
func (r *Result) Judge(messages []history.Message, turns int) {
	type delivery struct { // a message that was delivered twice has gone to two instances
		turn     int
		instance string
	}
	asked := map[delivery]int{} // where the question stands
	for i, m := range messages {
		if m.Role == "user" {
			asked[delivery{m.Turn, m.Instance}] = i
		}
	}
	answers, torn, stale := make([]int, turns), make([]bool, turns), make([]bool, turns)
	for i, m := range messages {
		if m.Role == "user" {
			continue
		}
		if question, ok := asked[delivery{m.Turn, m.Instance}]; ok {
			answers[m.Turn]++
			torn[m.Turn] = torn[m.Turn] || i != question+1
			stale[m.Turn] = stale[m.Turn] || m.Seen != question
		}
	}
	for turn := range turns {
		r.count(answers[turn], torn[turn], stale[turn])
	}
}

// count adds a message.
func (r *Result) count(answers int, torn, stale bool) {
	lost, doubled := answers == 0, answers > 1
	for _, c := range []struct {
		counter *int
		yes     bool
	}{
		{&r.Messages, true}, {&r.Lost, lost}, {&r.Torn, torn}, {&r.Stale, stale}, {&r.Doubled, doubled},
		{&r.Damaged, lost || torn || stale || doubled},
	} {
		if c.yes {
			*c.counter++
		}
	}
}

// waits returns how long the turns waited for the lock, the shortest wait first.
func (r *Result) waits() (waits []time.Duration) {
	for _, s := range r.Spans {
		if s.Name == distlock.OpAcquire {
			waits = append(waits, s.End.Sub(s.Start))
		}
	}
	slices.Sort(waits)
	return waits
}

// Print compares a run without and one with the lock. It returns an error if the lock broke its promise.
func Print(w io.Writer, title string, without, with *Result) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}, {Number: 3, Align: text.AlignRight}})
	t.SetTitle("%s", title)
	t.AppendRow(table.Row{"", "without lock", "with lock"})
	t.AppendSeparator()
	t.AppendRows([]table.Row{
		{"messages of users", without.Messages, with.Messages},
		{"lost: question or answer is not stored", without.Lost, with.Lost},
		{"torn: others' messages between question and answer", without.Torn, with.Torn},
		{"stale: answered without seeing all that stands before", without.Stale, with.Stale},
		{"doubled: delivered twice, and answered twice", without.Doubled, with.Doubled},
	})
	t.AppendSeparator()
	if waits := with.waits(); len(waits) > 0 {
		t.AppendRow(table.Row{"wait for the lock, median", "none", milliseconds(waits[len(waits)/2])})
		t.AppendRow(table.Row{"wait for the lock, longest", "none", milliseconds(waits[len(waits)-1])})
	}
	t.AppendRow(table.Row{"time for all messages", seconds(without.Took), seconds(with.Took)})
	fmt.Fprintf(w, "\n%s\n\n", t.Render())
	if without.Damaged == 0 {
		fmt.Fprint(w, "Without the lock nothing went wrong this time: the instances hardly met. Try more of them, or fewer\n"+
			"conversations.\n")
	} else {
		fmt.Fprintf(w, "Without the lock %d of %d messages went wrong: instances loaded the same history, answered\n"+
			"without knowing of each other, and wrote between each other's messages.\n", without.Damaged, without.Messages)
	}
	if with.Damaged > 0 {
		return fmt.Errorf("the lock broke its promise: %d of %d messages went wrong under it", with.Damaged, with.Messages)
	}
	fmt.Fprint(w, "With it every turn (load, model, save) had its conversation to itself: each answer follows its\n"+
		"question and saw all that stands before. A lock around save alone would not prevent stale answers.\n\n")
	waterfall(w, with.Spans)
	return nil
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
