package lockedmemory

import (
	"context"
	"maps"
	"slices"
	"testing"
)

// below calls f under n more frames.
//
//go:noinline
func below(n int, f func()) {
	if n == 0 {
		f()
		return
	}
	below(n-1, f)
}

func TestMark_isReadAsItWasWritten(t *testing.T) {
	if digits := script().digits; len(digits) != 16 {
		t.Fatalf("the compiler has left %d digits: %v", len(digits), digits)
	}
	for _, want := range [][]uint{{}, {0}, {1}, {15}, {16}, {17}, {0xff}, {0x100}, {0xf0f}, {1<<32 - 1}, {0, 16}, {16, 0}, {1, 0x10, 0x100}, {0x11, 1}} {
		for _, frames := range []int{0, 60, 500} {
			var write func(ctx context.Context, rest []uint) error
			write = func(ctx context.Context, rest []uint) error {
				if len(rest) > 0 {
					return marked(ctx, rest[0], func(ctx context.Context) error { return write(ctx, rest[1:]) })
				}
				below(frames, func() {
					got := slices.Collect(maps.Keys(marks()))
					if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
						t.Errorf("written %v, read %v, %d frames below", want, got, frames)
					}
				})
				return nil
			}
			_ = write(t.Context(), want)
		}
	}
}

// However turns end, nothing is kept of them, and their numbers are used again.
func TestRunning_forgetsTurnsThatHaveEnded(t *testing.T) {
	r := runs{of: make(map[session]*run)}
	one, other := session{key: "one"}, session{key: "other"}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		of := []session{one, one, one, other}
		var turns []*run
		for _, s := range of {
			turns = append(turns, r.begin(s))
		}
		for i, n := range order {
			for _, left := range order[i:] {
				found := false
				for this := r.of[of[left]]; this != nil; this = this.next {
					found = found || this == turns[left]
				}
				if !found {
					t.Errorf("in the order %v, the turn %d is forgotten before it ends", order, left)
				}
			}
			r.end(of[n], turns[n])
		}
		if len(r.of) != 0 || len(r.unused) != len(of) || r.next != uint(len(of)) {
			t.Errorf("in the order %v: left are %v, numbers %v of %d", order, r.of, r.unused, r.next)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_ = r.do(t.Context(), one, func(context.Context) error { panic("boom") })
	}()
	if r.any(one) {
		t.Error("a turn that has panicked runs on")
	}
}
