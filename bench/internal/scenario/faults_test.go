package scenario

import (
	"errors"
	"slices"
	"testing"
)

func TestBlame_keepsTheFirstFaultAndCountsAll(t *testing.T) {
	b := &Bench{faults: map[string]Faults{}}
	var f Faults
	f.add(nil)
	b.blame("b", f)
	f.add(errors.New("one"))
	b.blame("b", f)
	f.add(errors.New("two"))
	b.blame("a", f)
	b.blame("a", f)
	want := []string{"a: 4 releases returned an error, the first: one", "b: a release returned an error: one"}
	if got := b.notes(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
