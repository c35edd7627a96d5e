package renewal

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// sent is a batch that a backend received.
type sent struct {
	items []int
	at    time.Duration
}

// record makes a Sender whose batches take as long as takes says, and records them.
func record(limit int, takes func(batch int) time.Duration) (*Sender[int], func() []sent) {
	var mu sync.Mutex
	var batches []sent
	start := time.Now()
	s := &Sender[int]{Limit: limit}
	s.Send = func(items []int, done func()) {
		defer done()
		mu.Lock()
		n := len(batches)
		batches = append(batches, sent{items, time.Since(start)})
		mu.Unlock()
		time.Sleep(takes(n))
	}
	return s, func() []sent {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(batches)
	}
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestSender_twoBatchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 10 * time.Millisecond
		s, batches := record(10, func(int) time.Duration { return takes })
		s.Add(numbers(35)...)
		time.Sleep(time.Second)
		var ats []time.Duration
		for _, b := range batches() {
			ats = append(ats, b.at)
		}
		if want := []time.Duration{0, 0, takes, takes}; !slices.Equal(ats, want) {
			t.Errorf("sent at %s, want %s", ats, want)
		}
		if n := s.InFlight(); n != 0 {
			t.Errorf("%d batches under way at the end", n)
		}
	})
}

func TestSender_N_silentBatchesDelayOthersBy25ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, batches := record(1, func(n int) time.Duration {
			if n < 4 {
				return time.Hour
			}
			return time.Millisecond
		})
		s.Add(numbers(6)...)
		time.Sleep(time.Second)
		var ats []time.Duration
		for _, b := range batches() {
			ats = append(ats, b.at)
		}
		if want := []time.Duration{0, 0, Stagger, 2 * Stagger, 3 * Stagger, 4 * Stagger}; !slices.Equal(ats, want) {
			t.Errorf("sent at %s, want %s", ats, want)
		}
		time.Sleep(time.Hour)
	})
}

// Done may be called before Send returns, and again.
func TestSender_overdueBatchMakesRoomOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sender[int]{Limit: 1}
		end := make(chan struct{})
		s.Send = func(_ []int, done func()) {
			done()
			done()
			<-end
		}
		s.Add(numbers(5)...)
		synctest.Wait()
		if n := s.InFlight(); n != 0 {
			t.Errorf("%d batches under way, want 0", n)
		}
		close(end)
	})
}

// Each item is sent once, in order, in batches within the limit.
func TestSender_everyItemIsSentOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 7).Draw(rt, "limit")
		adds := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 10).Draw(rt, "adds")
		takes := rapid.SliceOfN(rapid.IntRange(0, 60), 1, 10).Draw(rt, "takes")
		synctest.Test(t, func(t *testing.T) {
			s, batches := record(limit, func(n int) time.Duration {
				return time.Duration(takes[n%len(takes)]) * time.Millisecond
			})
			next := 0
			for _, n := range adds {
				for _, i := range numbers(n) {
					s.Add(next + i)
				}
				next += n
				time.Sleep(7 * time.Millisecond)
			}
			time.Sleep(time.Hour)
			var all []int
			for _, b := range batches() {
				if len(b.items) == 0 || len(b.items) > limit {
					t.Fatalf("a batch of %d", len(b.items))
				}
				all = append(all, b.items...)
			}
			slices.Sort(all)
			if !slices.Equal(all, numbers(next)) {
				t.Fatalf("sent %v of %d", all, next)
			}
		})
	})
}
