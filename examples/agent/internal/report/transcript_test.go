package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
)

func TestTranscript_marksWrongMessages(t *testing.T) {
	for name, test := range map[string]struct {
		stored []history.Message
		turns  int
		want   string
	}{
		"nothing wrong": {[]history.Message{ask(0, "a"), answer(0, "a", 0)}, 1, "q0 a0"},
		"stale":         {[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(1, "b"), answer(1, "b", 0)}, 2, "q0 a0 q1 a1[stale]"},
		"torn":          {[]history.Message{ask(0, "a"), ask(1, "b"), answer(1, "b", 1), answer(0, "a", 0)}, 2, "q0[torn] q1 a1 a0[torn]"},
		"doubled":       {[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(0, "b"), answer(0, "b", 2)}, 1, "q0 a0 q0[doubled] a0[doubled]"},
		"all lost":      {nil, 2, "(q0)[lost] (a0)[lost] (q1)[lost] (a1)[lost]"},
		"one lost":      {[]history.Message{ask(0, "a"), answer(0, "a", 0), ask(2, "b"), answer(2, "b", 2)}, 3, "q0 a0 (q1)[lost] (a1)[lost] q2 a2"},
		"no answer":     {[]history.Message{ask(0, "a"), ask(1, "b"), answer(1, "b", 1)}, 2, "q0[lost torn] (a0)[lost] q1 a1"},
		"no question":   {[]history.Message{answer(0, "a", 0)}, 1, "(q0)[lost] a0[lost torn]"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Result
			r.Judge(0, test.stored, test.turns)
			var got []string
			for _, line := range r.Transcript(0) {
				text := fmt.Sprint(line.Role[:1], line.Turn)
				text = strings.NewReplacer("u", "q", "a", "a").Replace(text)
				if line.Missing {
					text = "(" + text + ")"
				}
				var kinds []string
				for _, f := range line.Wrong {
					kinds = append(kinds, string(f.Kind))
				}
				if len(kinds) > 0 {
					text += "[" + strings.Join(kinds, " ") + "]"
				}
				got = append(got, text)
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("the transcript is %s, want %s", got, test.want)
			}
		})
	}
}

func TestWorst_isTheMostDamagedConversation(t *testing.T) {
	var r Result
	for _, stored := range [][]history.Message{{ask(0, "a"), answer(0, "a", 0)}, {ask(0, "a"), answer(0, "a", 7)}, {}, {ask(1, "a"), answer(1, "a", 0)}} {
		r.Judge(len(r.Reports), stored, 1)
	}
	if got := r.Worst(); got != 1 {
		t.Errorf("it is conversation %d", got)
	}
}

func TestSerial_sumsModelsAndWrites(t *testing.T) {
	var r Result
	for i, session := range []int{0, 1, 1} {
		id := fmt.Sprint("t", i)
		root := at("root-"+id, "", "agent.turn", "a", 0, 900)
		root.Session = session
		r.Spans = append(r.Spans, root, at(id+"-model", id, "model", "a", 100, 130))
		r.Spans = append(r.Spans, turnOf(id, "a", 0, 100, 150)...) // a wait of 100 ms, and a save of 40 ms
	}
	failed := turnOf("t9", "a", 0, 100, 150)
	failed[1].Error = "the lock was lost"
	r.Spans = append(r.Spans, failed...)
	if got := r.Serial(); got.Milliseconds() != 2*(30+40) {
		t.Errorf("it is %s", got)
	}
}
