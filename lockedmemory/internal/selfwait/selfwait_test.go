package selfwait

import (
	"slices"
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

// Every goroutine has its own ID, at every depth of its stack.
func TestGoroutine_isItsOwn(t *testing.T) {
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
			<-stop // an ID is not used again while its goroutine lives
		})
	}
	all.Wait()
}

// In whatever order functions end, nothing of them is kept.
func TestSet_keepsOnlyWhatRuns(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		var s Set[string]
		keys := []string{"one", "one", "one", "other"}
		var runs []*run
		for _, key := range keys {
			runs = append(runs, &run{})
			s.add(key, runs[len(runs)-1])
		}
		for i, n := range order {
			for _, left := range order[i:] {
				if !slices.Contains(s.runs[keys[left]], runs[left]) {
					t.Errorf("in the order %v, run %d is removed before it ends", order, left)
				}
			}
			s.remove(keys[n], runs[n])
		}
		if len(s.runs) != 0 {
			t.Errorf("in the order %v: left are %v", order, s.runs)
		}
	}
	var s Set[string]
	func() {
		defer func() { _ = recover() }()
		_ = s.Do("one", func() error { panic("boom") })
	}()
	if len(s.runs) != 0 {
		t.Error("a function that has panicked runs on")
	}
}
