package selfwait

import (
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

// A caller is inside its own functions alone, and nothing is kept of those that have ended.
func TestSet_insideOnlyItsOwn(t *testing.T) {
	var s Set[string]
	at := func(key string, want bool) {
		t.Helper()
		if began, inside := s.Inside(key); inside != want || inside == began.IsZero() {
			t.Errorf("inside %q: %t since %s, want %t", key, inside, began, want)
		}
	}
	_ = s.Do("one", func() error {
		return s.Do("other", func() error {
			_ = s.Do("one", func() error { at("one", true); return nil })
			at("one", true) // still
			at("other", true)
			var wg sync.WaitGroup
			wg.Go(func() {
				at("one", false)
				_ = s.Do("one", func() error { at("one", true); return nil })
			})
			wg.Wait()
			at("third", false)
			return nil
		})
	})
	at("one", false)
	func() {
		defer func() { _ = recover() }()
		_ = s.Do("one", func() error { panic("boom") })
	}()
	if len(s.runs) > 0 {
		t.Errorf("left is %v", s.runs)
	}
}
