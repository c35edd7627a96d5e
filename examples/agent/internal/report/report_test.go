package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		want   Result
	}{
		"as it should be": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b"), answer(1, "b", 2)},
			Result{Messages: 2},
		},
		"nothing stored": {nil, Result{Messages: 2, Lost: 2, Damaged: 2}},
		"no answer": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b")},
			Result{Messages: 2, Lost: 1, Damaged: 1},
		},
		"no question": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), answer(1, "b", 2)},
			Result{Messages: 2, Lost: 1, Damaged: 1},
		},
		"one turn inside another": {
			[]history.Message{ask(0, "a"), ask(1, "b"), answer(1, "b", 1), answer(0, "a", 0)},
			Result{Messages: 2, Torn: 1, Damaged: 1},
		},
		"answer before its question": {
			[]history.Message{ask(1, "b"), answer(1, "b", 0), answer(0, "a", 2), ask(0, "a")},
			Result{Messages: 2, Torn: 1, Stale: 1, Damaged: 1},
		},
		"both from the same history": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b"), answer(1, "b", 0)},
			Result{Messages: 2, Stale: 1, Damaged: 1},
		},
		"delivered and answered twice": {
			[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(0, "b"), answer(0, "b", 2), ask(1, "a"), answer(1, "a", 4)},
			Result{Messages: 2, Doubled: 1, Damaged: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r Result
			r.Judge(test.stored, 2)
			if got, want := fmt.Sprint(r), fmt.Sprint(test.want); got != want {
				t.Errorf("the result is %s, want %s", got, want)
			}
		})
	}
}

func TestPrint_saysWhenTheLockBrokeItsPromise(t *testing.T) {
	var out strings.Builder
	err := Print(&out, "title", &Result{Messages: 5, Stale: 4, Damaged: 4}, &Result{Messages: 5, Torn: 1, Damaged: 1})
	if err == nil || err.Error() != "the lock broke its promise: 1 of 5 messages went wrong under it" {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(out.String(), "4 of 5 messages went wrong") || strings.Contains(out.String(), "to itself") {
		t.Errorf("the words do not fit:\n%s", &out)
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
		at(id+"-save", id, "lockedmemory.save", instance, got, end-10),
		at(id, "root-"+id, "lockedmemory.turn", instance, from, end),
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
	want := `A turn of instance-2 that had to wait (░), and above it the turn of instance-1 in its way:

instance-1
  lockedmemory.turn │██████████████████████████████                              │     60.0 ms
  distlock.acquire  │░                                                           │      2.0 ms
  lockedmemory.save │ ████████████████████████                                   │     48.0 ms
instance-2
  lockedmemory.turn │     ███████████████████████████████████████████████████████│    110.0 ms
  distlock.acquire  │     ░░░░░░░░░░░░░░░░░░░░░░░░░                              │     50.0 ms
  lockedmemory.save │                              █████████████████████████     │     50.0 ms
`
	if out.String() != want {
		t.Errorf("the picture is\n%s\nwant\n%s", &out, want)
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
