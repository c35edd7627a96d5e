package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
)

func ask(turn int, instance string) history.Message {
	return history.Message{Role: "user", Turn: turn, Instance: instance}
}

func answer(turn int, instance string, seen int) history.Message {
	return history.Message{Role: "assistant", Turn: turn, Instance: instance, Seen: seen}
}

func TestResult_judgesWhatIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		stored []history.Message
		want   string
	}{
		"as it should be": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b"), answer(1, "b", 2)},
			"0 of 2: lost 0, torn 0, stale 0, doubled 0, out of order 0",
		},
		"nothing stored": {nil, "2 of 2: lost 2, torn 0, stale 0, doubled 0, out of order 0"},
		"delivered and answered twice": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(0, "b"), answer(0, "b", 2), ask(1, "a"), answer(1, "a", 4)},
			"1 of 2: lost 0, torn 0, stale 0, doubled 1, out of order 0",
		},
		"an instance's messages change places": {
			[]history.Message{ask(1, "c"), answer(1, "c", 0), ask(0, "c"), answer(0, "c", 2)},
			"1 of 2: lost 0, torn 0, stale 0, doubled 0, out of order 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r Result
			r.Ended = []balancer.Turn{
				{Instance: "c", Message: 0, Start: time.UnixMilli(1), End: time.UnixMilli(2)},
				{Instance: "c", Message: 1, Start: time.UnixMilli(3), End: time.UnixMilli(4)},
				{Instance: "a", Session: 1, Message: 0, Start: time.UnixMilli(9), End: time.UnixMilli(10)},
			}
			r.Judge(test.stored, 2)
			got := fmt.Sprintf("%d of %d:", r.Count(), r.Messages)
			for i, row := range (&Comparison{Runs: [3]*Result{{}, {}, &r}}).Table()[0][1:] {
				got += strings.Repeat(",", min(i, 1)) + " " + row.Name + " " + row.Cells[2]
			}
			if got != test.want {
				t.Errorf("the result is %q, want %q", got, test.want)
			}
		})
	}
}

// damaged is the result of a run of five messages, the first of which were answered from an old
// history.
func damaged(locked Locked, stale int) *Result {
	r := &Result{Locked: locked}
	for range 5 {
		r.Judge([]history.Message{ask(0, "a"), answer(0, "a", min(stale, 1))}, 1)
		stale -= min(stale, 1)
	}
	return r
}

// compared is a comparison of runs with so many stale answers.
func compared(noLock, saveOnly, wholeTurn int) *Comparison {
	return &Comparison{Runs: [3]*Result{damaged(NoLock, noLock), damaged(SaveOnly, saveOnly), damaged(WholeTurn, wholeTurn)}}
}

func TestHeadline_saysTheResult(t *testing.T) {
	for want, c := range map[string]*Comparison{
		"Without a lock 4 of 5 messages went wrong, with a lock around Save alone 3, and with a lock around the whole turn 0.": compared(4, 3, 0),
		"Without a lock 4 of 5 messages went wrong, with a lock around Save alone 0, and with a lock around the whole turn 1.": compared(4, 0, 1),
	} {
		if got := c.Headline(); got != want {
			t.Errorf("the headline is %q, want %q", got, want)
		}
	}
}

func TestPrint_hasAColumnForEachRun(t *testing.T) {
	var out strings.Builder
	if err := compared(4, 3, 0).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"│ what the lock covers                      │ no lock │ Save only │ whole turn │\n",
		"│ stale: answered from an outdated history  │       4 │         3 │          0 │\n",
		"│ stale writes refused: token was outdated  │       – │         – │          0 │\n",
		"history\nbefore it waits, so 3 of 5 answers come from an outdated history.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

func TestPrint_saysWhenTheLockBrokeItsPromise(t *testing.T) {
	var out strings.Builder
	err := compared(4, 0, 1).Print(&out)
	if want := "the lock broke its promise: 1 of 5 messages went wrong under it. In conversation 0, " +
		"turn 0 is stale: answer at 1 had seen 1 messages, but 0 stand before its question"; err == nil || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(out.String(), "4 of 5 messages went wrong") || strings.Contains(out.String(), "With a lock around the whole turn") ||
		strings.Contains(out.String(), "too late") {
		t.Errorf("the words do not fit:\n%s", &out)
	}
}

func TestPrint_saysWhatChaosDid(t *testing.T) {
	var out strings.Builder
	c := compared(4, 3, 0)
	c.Chaos, c.Pause, c.TTL = true, 1500*time.Millisecond, time.Second
	for _, run := range c.Runs {
		run.Outcome = balancer.Outcome{Kills: 2, Pauses: 1, Again: 3, Ended: []balancer.Turn{{Refused: true}, {}}}
	}
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"│ instances killed: in the middle of a turn │       2 │         2 │          2 │\n",
		"│ instances paused: 1.5 s, lock lasts 1.0 s │       1 │         1 │          1 │\n",
		"│ delivered again: turn cut off, or failed  │       3 │         3 │          3 │\n",
		"│ stale writes refused: token was outdated  │       – │         – │          1 │\n",
		"\nThat holds although 2 instances were killed and 1 paused in the middle",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
}

func TestTable_waits(t *testing.T) {
	c := compared(0, 0, 0)
	for i := range 200 {
		c.Runs[2].Spans = append(c.Runs[2].Spans, balancer.Span{Name: "distlock.acquire", End: time.Time{}.Add(time.Duration(200-i) * time.Millisecond)})
	}
	for i, want := range []string{"100.0 ms", "200.0 ms"} {
		if row := c.Table()[2][i]; row.Cells != [3]string{"–", "–", want} {
			t.Errorf("the row is %v, want %s", row, want)
		}
	}
}
