package matrix

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// slotMoves: the slots of locks move to another master under load, again and again. No lease is
// lost, no two clients hold a lock, and tokens rise. While a slot moves, a call takes three round
// trips: its own, and that of the client, which follows the redirection. Acquire and release
// without contention then take at most six times as long as those of a lock whose slot stays, in
// the median of that time. More means that calls wait for something else.
func slotMoves(t *testing.T, s *service) {
	const (
		key, ttl      = "slotMoves", 2 * time.Second
		during, after = 30 * time.Millisecond, 270 * time.Millisecond // a move
		moves, rounds = 20, 3                                         // one round has to be within the limit
		limit         = 6
	)
	opts := []setting{withTTL(ttl), forever}
	moved, contended := key+"-moved", key+"-contended"
	stays := s.keyAt(key+"-stays", moved)
	kept := mustAcquire(t, s.locker(t, opts...), moved+"-kept") // renewed all the time
	alone := s.locker(t, opts...)

	load := newContenders(t, s, 3)
	load.begin(contended)
	for round := 1; ; round++ {
		took := make(map[string][]time.Duration)
		for range moves {
			for name, pairs := range uncontended(t, alone, []string{moved, stays}, func() {
				var finish []func()
				for _, key := range []string{moved, contended, kept.Key()} {
					finish = append(finish, s.Cluster.BeginMove(lockKey(key)))
				}
				time.Sleep(during)
				for _, finish := range finish {
					finish()
				}
			}) {
				took[name] = append(took[name], pairs...)
			}
			time.Sleep(after)
		}
		moving, still := median(took[moved]), median(took[stays])
		t.Logf("in %d moves a pair of calls takes %s, and %s where the slot stays", moves, moving, still)
		if moving <= limit*still {
			break
		}
		if round == rounds {
			t.Error("too slow")
			break
		}
	}
	load.end()
	if err := kept.Err(); err != nil {
		t.Errorf("a lease that is renewed: %v", err)
	}
	mustRelease(t, kept)
	for _, key := range []string{moved, stays, contended, kept.Key()} {
		s.gone(t, key)
		s.expires(t, key)
	}
}

// uncontended acquires and releases locks one after the other while during runs, each in a
// goroutine of its own, and returns how long each pair of calls took.
func uncontended(t *testing.T, l *distlock.Locker, keys []string, during func()) map[string][]time.Duration {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	all := make([][]time.Duration, len(keys))
	var workers sync.WaitGroup
	for i, key := range keys {
		workers.Go(func() {
			for fence := int64(0); ctx.Err() == nil; {
				start := time.Now()
				lease, err := l.Acquire(t.Context(), key)
				if err != nil {
					t.Errorf("without contenders: %v", err)
					return
				}
				mustRelease(t, lease)
				all[i] = append(all[i], time.Since(start))
				rises(t, fence, lease.Fence())
				fence = lease.Fence()
			}
		})
	}
	during()
	stop()
	workers.Wait()
	took := make(map[string][]time.Duration)
	for i, key := range keys {
		took[key] = all[i]
	}
	return took
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
