package lockedmemory

import (
	"context"
	"sync"
	"testing"
)

// below calls f under n more frames.
func below(n int, f func()) {
	if n > 0 {
		below(n-1, f)
		return
	}
	f()
}

// Every goroutine has an ID of its own, whatever is on its stack.
func TestGoroutine_tellsGoroutinesApart(t *testing.T) {
	var (
		mu   sync.Mutex
		seen = make(map[uint64]bool)
		all  sync.WaitGroup
		stop = make(chan struct{})
	)
	for range 50 {
		all.Go(func() {
			id := goroutine()
			below(100, func() {
				if again := goroutine(); again != id || id == 0 {
					t.Errorf("%d, and further down %d", id, again)
				}
			})
			mu.Lock()
			seen[id] = true
			last := len(seen) == 50
			mu.Unlock()
			if last {
				close(stop)
			}
			<-stop // an ID is not given to another one while its goroutine lives
		})
	}
	all.Wait()
}

// However turns end, nothing is kept of them.
func TestRunning_forgetsTurnsThatHaveEnded(t *testing.T) {
	r := runs{of: make(map[session]*run)}
	one, other := session{key: "one"}, session{key: "other"}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		of := []session{one, one, one, other}
		var turns []*run
		for _, s := range of {
			turns = append(turns, &run{})
			r.begin(s, turns[len(turns)-1])
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
		if len(r.of) != 0 {
			t.Errorf("in the order %v: left are %v", order, r.of)
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
