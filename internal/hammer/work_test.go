package hammer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
)

const (
	keysInUse = 4
	ttl       = 3 * time.Second
	// patience is how long one goroutine of each process waits for a lock, which has to be enough.
	patience = 30 * time.Second
)

// work is that of one process.
type work struct {
	Locks, Store string // addresses
	Goroutines   int
	Duration     time.Duration

	store *redis.Client
	counts
}

// counts are of acquisitions, by how they ended.
type counts struct {
	worked, busy, cancelled, unavailable, lost, longest atomic.Int64
}

func (w *work) run(t *testing.T) {
	w.store = redis.NewClient(&redis.Options{Addr: w.Store, PoolSize: w.Goroutines})
	defer w.store.Close()
	// Both kinds of client: calls are made in the caller's goroutine with one of them.
	client := redis.NewClient(&redis.Options{Addr: w.Locks, ContextTimeoutEnabled: rand.N(2) == 0})
	defer client.Close()
	l, err := redislock.New(client, &distlock.Options{Namespace: "hammer", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	stop := time.Now().Add(w.Duration)
	var working sync.WaitGroup
	for g := range w.Goroutines {
		working.Go(func() {
			failed := 0 // in a row
			for time.Now().Before(stop) && !t.Failed() {
				if g == 0 {
					w.patient(t, l)
				} else if w.hasty(t, l) {
					failed = 0
				} else {
					// As who has been turned away does. Without that, the machine does nothing but clean up when it is too slow.
					failed = min(failed+1, 16)
					time.Sleep(rand.N(time.Duration(failed*failed) * 8 * time.Millisecond))
				}
			}
		})
	}
	working.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	c := &w.counts
	t.Logf("%d worked, %d busy, %d cancelled, %d unavailable, %d lost; the patient waited for %s at most", c.worked.Load(), c.busy.Load(),
		c.cancelled.Load(), c.unavailable.Load(), c.lost.Load(), time.Duration(c.longest.Load()).Round(time.Millisecond))
	if c.worked.Load() == 0 || w.Goroutines > 1 && c.cancelled.Load() == 0 {
		t.Error("this tests nothing")
	}
}

func someKey() string { return fmt.Sprint("key-", rand.N(keysInUse)) }

// patient waits for its turn, which has to come.
func (w *work) patient(t *testing.T, l *distlock.Locker) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := time.Now()
	lease, err := l.Acquire(distlock.WithWait(ctx, -1), someKey())
	w.longest.Store(max(w.longest.Load(), int64(time.Since(start))))
	if err != nil {
		if w.ended(t, err); !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("one who waited for %s: %v", time.Since(start), err)
		}
		return
	}
	w.under(t, lease)
	w.ended(t, lease.Release(ctx))
}

// hasty acquires in some way, and leaves at some moment. It reports whether it has had the lock.
func (w *work) hasty(t *testing.T, l *distlock.Locker) (had bool) {
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(50*time.Millisecond))
	defer cancel()
	key := someKey()
	switch rand.N(5) {
	case 0, 1:
		return w.held(t, ctx)(l.Acquire(distlock.WithWait(ctx, -1), key))
	case 2:
		return w.held(t, ctx)(l.TryAcquire(ctx, key))
	case 3:
		lock := l.NewLock(key, 0)
		if err := lock.AcquireWithRetry(ctx, 3, rand.N(10*time.Millisecond)); err != nil {
			w.ended(t, err)
			return false
		}
		// It does not tell its token, or whether it is lost: that is known when it is given back.
		alone := w.section(t, key, "")
		err := lock.Release(ctx)
		if !alone && !errors.Is(err, distlock.ErrLost) {
			t.Errorf("%s: somebody else was there, and the release says %v", key, err)
		}
		w.ended(t, err)
		return true
	default:
		w.ended(t, l.Do(ctx, key, func(ctx context.Context) error {
			had = true
			lease, ok := l.FromContext(ctx, key)
			if !ok {
				t.Error("there is no lease in the context")
				return nil
			}
			w.under(t, lease)
			return nil
		}))
		return had
	}
}

// held works under a lease, if there is one, and gives it back, half of the time under a context that may have ended.
func (w *work) held(t *testing.T, ctx context.Context) func(*distlock.Lease, error) (had bool) {
	return func(lease *distlock.Lease, err error) bool {
		had := err == nil
		if had {
			w.under(t, lease)
			if rand.N(2) == 0 {
				ctx = context.WithoutCancel(ctx)
			}
			err = lease.Release(ctx)
		}
		w.ended(t, err)
		return had
	}
}

// ended counts how something ended.
func (w *work) ended(t *testing.T, err error) {
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		w.cancelled.Add(1)
	case errors.Is(err, distlock.ErrNotAcquired):
		w.busy.Add(1)
	case errors.Is(err, distlock.ErrLost):
		w.lost.Add(1)
	case errors.Is(err, distlock.ErrUnavailable) && !errors.Is(err, driver.ErrForeign) && !errors.Is(err, driver.ErrRefused):
		w.unavailable.Add(1)
	default:
		t.Errorf("an error that should not be: %v", err)
	}
}

// enter notes in the store who works, and under which token. It answers 0 to one whose token is not above that of all who
// were there before; "" is no token. leave answers 0 if somebody else is there.
var (
	enter = redis.NewScript(`
		if ARGV[2] == '' then
			if redis.call('EXISTS', KEYS[2]) == 1 then
				return 0
			end
		elseif tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[2]) then
			return 0
		else
			redis.call('SET', KEYS[1], ARGV[2])
		end
		redis.call('SET', KEYS[2], ARGV[1])
		return 1`)
	leave = redis.NewScript(`
		if redis.call('GET', KEYS[2]) ~= ARGV[1] then
			return 0
		end
		redis.call('DEL', KEYS[2])
		return 1`)
)

// section does what only one may do at a time, and reports whether it was alone, as far as it can see. Of two who meet, one
// at least sees it.
func (w *work) section(t *testing.T, key, token string) (alone bool) {
	keys := []string{"mark:" + key, "inside:" + key}
	id := fmt.Sprint(rand.Int64())
	ask := func(script *redis.Script, args ...any) bool {
		answer, err := script.Run(context.Background(), w.store, keys, args...).Int()
		if err != nil {
			t.Errorf("the store: %v", err)
		}
		return answer == 1
	}
	if !ask(enter, id, token) {
		return false
	}
	w.worked.Add(1)
	if rand.N(2) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond)) // the work
	}
	return ask(leave, id)
}

// under is a section under a lease, which must have been lost if it was not alone.
func (w *work) under(t *testing.T, lease *distlock.Lease) {
	if w.section(t, lease.Key(), fmt.Sprint(lease.Fence())) {
		return
	}
	if err := lease.Err(); err == nil {
		t.Errorf("%s, token %d: somebody else was there, or had a higher token, and the lease is held", lease.Key(), lease.Fence())
	}
	w.lost.Add(1)
}
