package history

import (
	"flag"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func init() {
	_ = flag.Set("rapid.checks", "50")
	_ = flag.Set("rapid.nofailfile", "true") // seeds are printed, and files would be left in the source
}

// A history that the models themselves have made is right.
func TestCheck_legalHistoriesPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, ops := range rapid.SliceOfN(legal(10, 90), 6, 6).Draw(t, "histories") {
			if err := CheckSessions(ops, Options{}).Err(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A history that is wrong stays wrong behind a legal one, with all that this has left open.
func TestCheck_wrongHistoriesAreCaught(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A Save outside of a turn whose outcome is unknown excuses refusals.
		excuses := func(o Op) bool { return o.Outcome == Unknown && o.Kind == Save && o.Fence == 0 }
		before := legal(10, 40).Filter(func(ops []Op) bool { return !slices.ContainsFunc(ops, excuses) }).Draw(t, "legal")
		var end, fence int64
		for _, o := range before {
			end, fence = max(end, o.Call, o.Return), max(fence, o.Fence, o.Mark)
		}
		fence += int64(len(before)) // Saves outside of a turn have taken some
		h := rapid.SampledFrom(wrongSessions).Draw(t, "sessions")
		ops := append(slices.Clone(before), cleared(fence, end+1, end+2, OK))
		for _, o := range h.ops {
			o.Call += end + 3
			for _, later := range []struct {
				of *int64
				by int64
			}{{&o.Return, end + 3}, {&o.Began, end + 3}, {&o.Fence, fence}, {&o.Mark, fence}} {
				if *later.of != 0 {
					*later.of += later.by
				}
			}
			ops = append(ops, o)
		}
		if v := CheckSessions(ops, Options{}); len(v.Violations) == 0 {
			t.Errorf("%s: %v was not caught: %v", h.name, v.Err(), ops)
		}
	})
}

// One key that everybody uses is no harder than many.
func TestCheck_longSession(t *testing.T) {
	if err := CheckSessions(legal(5000, 5000).Example(), Options{}).Err(); err != nil {
		t.Error(err)
	}
}
