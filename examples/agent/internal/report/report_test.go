package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
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
		"no answer": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b")},
			"1 of 2: lost 1, torn 1, stale 0, doubled 0, out of order 0",
		},
		"no question": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), answer(1, "b", 2)},
			"1 of 2: lost 1, torn 1, stale 0, doubled 0, out of order 0",
		},
		"one turn inside another": {
			[]history.Message{ask(0, "a"), ask(1, "b"), answer(1, "b", 1), answer(0, "a", 0)},
			"1 of 2: lost 0, torn 1, stale 0, doubled 0, out of order 0",
		},
		"answer before its question": {
			[]history.Message{ask(1, "b"), answer(1, "b", 0), answer(0, "a", 2), ask(0, "a")},
			"1 of 2: lost 0, torn 1, stale 1, doubled 0, out of order 0",
		},
		"both from the same history": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b"), answer(1, "b", 0)},
			"1 of 2: lost 0, torn 0, stale 1, doubled 0, out of order 0",
		},
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
			r := Result{Spans: []spans.Span{
				{Name: spans.Turn, Instance: "c", Session: 7, Message: 0, Start: time.UnixMilli(1), End: time.UnixMilli(2)},
				{Name: spans.Turn, Instance: "c", Session: 7, Message: 1, Start: time.UnixMilli(3), End: time.UnixMilli(4)},
				{Name: spans.Turn, Instance: "a", Session: 8, Message: 0, Start: time.UnixMilli(9), End: time.UnixMilli(10)},
			}}
			r.Judge(7, test.stored, 2)
			got := fmt.Sprintf("%d of %d:", r.Count(), r.Messages)
			for i, row := range (&Comparison{NoLock: &Result{}, SaveOnly: &Result{}, WholeTurn: &r}).Damage() {
				got += strings.Repeat(",", min(i, 1)) + " " + row.Name + " " + row.Cells[2].Text
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
		r.Judge(len(r.Reports), []history.Message{ask(0, "a"), answer(0, "a", min(stale, 1))}, 1)
		stale -= min(stale, 1)
	}
	return r
}

// compared is a comparison of runs with so many stale answers.
func compared(noLock, saveOnly, wholeTurn int) *Comparison {
	return &Comparison{NoLock: damaged(NoLock, noLock), SaveOnly: damaged(SaveOnly, saveOnly), WholeTurn: damaged(WholeTurn, wholeTurn)}
}

func TestHeadline_saysTheResult(t *testing.T) {
	for want, c := range map[string]*Comparison{
		"Without a lock 4 of 5 messages went wrong, with a lock around Save alone 3, and with a lock around the whole turn none.": compared(4, 3, 0),
		"Without a lock 4 of 5 messages went wrong, with a lock around Save alone none, and with a lock around the whole turn 1.": compared(4, 0, 1),
		"Nothing went wrong in any of the three runs.": compared(0, 0, 0),
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
	if err == nil || err.Error() != "the lock broke its promise: 1 of 5 messages went wrong under it" {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(out.String(), "4 of 5 messages went wrong") || strings.Contains(out.String(), "With a lock around the whole turn") ||
		strings.Contains(out.String(), "too late") {
		t.Errorf("the words do not fit:\n%s", &out)
	}
	if want := "\nconversation 0, turn 0 is stale: answer at 1 had seen 1 messages, but 0 stand before its question\n"; !strings.Contains(out.String(), want) {
		t.Errorf("it does not say what went wrong:\n%s", &out)
	}
}

func TestPrint_saysWhatChaosDid(t *testing.T) {
	var out strings.Builder
	c := compared(4, 3, 0)
	c.Chaos, c.TTL = balancer.Chaos{Strikes: 3, Pause: 1500 * time.Millisecond}, time.Second
	for _, run := range c.Runs() {
		run.Tally = balancer.Tally{Kills: 2, Pauses: 1, Again: 3}
	}
	c.WholeTurn.Tally.Nodes = 1
	c.WholeTurn.Spans = []spans.Span{{Name: "lockedmemory.save_once", Refused: true}, {Name: "lockedmemory.save_once"}}
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"│ instances killed: in the middle of a turn │       2 │         2 │          2 │\n",
		"│ instances paused: 1.5 s, lock lasts 1.0 s │       1 │         1 │          1 │\n",
		"│ delivered again: turn cut off, or failed  │       3 │         3 │          3 │\n",
		"│ stale writes refused: token was outdated  │       – │         – │          1 │\n",
		"│ lock nodes killed: and not started again  │       0 │         0 │          1 │\n",
		"was killed, too. The\nothers are a quorum",
		"\nThat holds although 2 instances were killed and 1 paused in the middle",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	fits(t, out.String())
}

// fits wants lines that a terminal of 80 columns does not break.
func fits(t *testing.T, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
}

func TestFindings_areTheFirstOfEachKind(t *testing.T) {
	if got := damaged(NoLock, 4).Findings(2); len(got) != 2 || got[0].Session != 0 || got[1].Session != 1 {
		t.Errorf("the findings are %v", got)
	}
}

func TestPercentile(t *testing.T) {
	var waits []time.Duration
	for i := range 200 {
		waits = append(waits, time.Duration(i+1)*time.Millisecond)
	}
	for p, want := range map[int]time.Duration{50: 101, 90: 181, 99: 199, 100: 200} {
		if got := Percentile(waits, p); got != want*time.Millisecond {
			t.Errorf("percentile %d is %s, want %d ms", p, got, want)
		}
	}
	if got := Percentile(waits[:1], 100); got != time.Millisecond {
		t.Errorf("of one wait it is %s", got)
	}
}

// at makes a span from two moments in milliseconds.
func at(id, parent, name, instance string, from, to int, links ...string) spans.Span {
	moment := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	return spans.Span{ID: id, Parent: parent, Name: name, Instance: instance, Start: moment(from), End: moment(to), Links: links}
}

func turnOf(id, instance string, from, got, end int, links ...string) []spans.Span {
	return []spans.Span{ // in the order in which they finish
		at(id+"-acquire", id, "distlock.acquire", instance, from, got, links...),
		at(id+"-save", id, "lockedmemory.save_once", instance, got, end-10),
		at(id, "root-"+id, "lockedmemory.answer", instance, from, end),
	}
}

func TestWaterfall_showsTheClearestMeeting(t *testing.T) {
	var finished []spans.Span
	finished = append(finished, turnOf("t1", "instance-1", 0, 2, 60)...)
	finished = append(finished, turnOf("t2", "instance-2", 10, 60, 120, "t1")...)
	finished = append(finished, turnOf("t3", "instance-3", 10, 120, 150, "t2")...) // waited for t1, too: less clear
	finished = append(finished, turnOf("t4", "instance-4", 500, 900, 910, "gone")...)
	var out strings.Builder
	waterfall(&out, finished)
	want := `A turn of instance-2 that had to wait (░), and above it the turn of instance-1
in its way:

instance-1
  lockedmemory.answer    │█████████████████████                      │   60.0 ms
  distlock.acquire       │▏                                          │    2.0 ms
  lockedmemory.save_once │█████████████████                          │   48.0 ms
instance-2
  lockedmemory.answer    │   ████████████████████████████████████████│  110.0 ms
  distlock.acquire       │   ░░░░░░░░░░░░░░░░░░                      │   50.0 ms
  lockedmemory.save_once │                     ██████████████████    │   50.0 ms
`
	fits(t, out.String())
	if out.String() != want {
		t.Errorf("the picture is\n%s\nwant\n%s", &out, want)
	}
}

func TestWaterfall_leavesOutTurnsThatLostTheLock(t *testing.T) {
	lost := turnOf("t1", "instance-1", 0, 2, 60)
	lost[1].Error = "the store has seen a later holder"
	if _, ok := Clearest(append(lost, turnOf("t2", "instance-2", 10, 30, 120, "t1")...)); ok {
		t.Error("the picture shows one")
	}
}

func TestWaterfall_saysThatNobodyWaited(t *testing.T) {
	for name, finished := range map[string][]spans.Span{"no spans": nil, "one turn": turnOf("t1", "instance-1", 0, 0, 60)} {
		var out strings.Builder
		waterfall(&out, finished)
		if !strings.Contains(out.String(), "No turn had to wait") {
			t.Errorf("%s: it says %q", name, &out)
		}
	}
}
