package scenario

import (
	"errors"
	"slices"
	"testing"
)

func TestAddFaults_keepsTheFirstFaultAndCountsAll(t *testing.T) {
	b := &Bench{faults: map[string]Faults{}}
	var f Faults
	f.add(nil)
	b.addFaults("b", f)
	f.add(errors.New("one"))
	b.addFaults("b", f)
	f.add(errors.New("two"))
	b.addFaults("a", f)
	b.addFaults("a", f)
	want := []string{"a: 4 releases returned an error, the first: one", "b: a release returned an error: one"}
	if got := b.notes(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
