package report

import (
	"fmt"
	"testing"
)

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
