package matrix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// prompt is how late a call may return after its context has ended.
const prompt = 50 * time.Millisecond

// soon reports whether a call returns at once when it is due, a time after its start. Stalls of
// this process do not count.
func soon(start time.Time, due time.Duration) bool {
	return time.Since(start) <= due+prompt+stalls.Stalled(start, time.Now())
}

// A hundred holders, at different points of their renewals, are cut off at once. Every one is told
// while the server still has its lock, by the server's clock.
//
// It takes a process that runs: a holder at whose end this one was not given a processor for a
// while shows nothing. There are rounds until a hundred have shown it. A longer TTL leaves holders
// of a busy machine more time.
func holdersCutOff(t *testing.T, s *service) {
	const rounds, holders, longest = 8, 100, 16 * time.Second
	shown := 0
	for round := range rounds {
		start, ends := time.Now(), make([]end, holders)
		t.Run(fmt.Sprint(round), func(t *testing.T) { cutOff(t, s, min(2*time.Second<<round, longest), ends) })
		if t.Failed() {
			return
		}
		inTime, last := 0, ends[0].left
		for i, e := range ends {
			last = min(last, e.left)
			if e.left > 0 {
				inTime++
				continue
			}
			// Before it was told, when its timer may have been late, and while the server was
			// asked.
			stalled := stalls.Stalled(e.told.Add(-250*time.Millisecond), e.asked)
			if stalled == 0 && e.asked.Sub(e.told) < 20*time.Millisecond {
				t.Fatalf("holder %d was told too late, without an excuse: the lock had %s left", i, e.left)
			}
		}
		t.Logf("%d of %d holders were told before the lock had expired, the last one %s before; the process stood %d times",
			inTime, len(ends), last, len(stalls.Spans(start, time.Now())))
		if shown += inTime; shown >= holders {
			return
		}
	}
	t.Fatalf("in %d rounds %d holders have shown that they are told in time, and %d should", rounds, shown, holders)
}

// end is that of a lease whose holder was cut off.
type end struct {
	told, asked time.Time     // the holder; the server, which has answered by then
	left        time.Duration // of the lock's TTL
}

// holdersPerClient: clients of several servers, or of PostgreSQL, are expensive.
var holdersPerClient = map[string]int{"node": 1, "postgres": 10, "redlock3": 10}

// lifetimes returns a function that asks the server for the rest of a lock's TTL, over n
// connections.
func (s *service) lifetimes(t *testing.T, n int) func(ctx context.Context, key string) (time.Duration, error) {
	c := s.client(t, setting{
		redis:    func(o *redis.UniversalOptions) { o.MinIdleConns, o.PoolSize = n, n },
		postgres: func(o *pgxpool.Config) { o.MinConns, o.MaxConns = int32(n), int32(n) },
	})
	if c.nodes != nil {
		return s.lifetimesOfAll(c)
	}
	return func(ctx context.Context, key string) (time.Duration, error) {
		if c.postgres == nil {
			left, err := c.redis.PTTL(ctx, lockKey(key)).Result()
			return left - recordKeep, err
		}
		var micros int64
		err := c.postgres.QueryRow(ctx, "SELECT expires_at - "+microsNow+" FROM belugalock.lease WHERE key = $1", key).Scan(&micros)
		return time.Duration(micros) * time.Microsecond, err
	}
}

// cutOff cuts holders off, and notes their ends.
func cutOff(t *testing.T, s *service, ttl time.Duration, ends []end) {
	network := faultnet.NewNet(t)
	left := s.lifetimes(t, len(ends))
	lockers := make([]*distlock.Locker, len(ends)/holdersPerClient[s.Name])
	for i := range lockers {
		lockers[i] = s.locker(t, dialedBy(network.Dial), withTTL(ttl))
	}
	tick := time.NewTicker(ttl / 3 / time.Duration(len(ends)))
	defer tick.Stop()
	var told sync.WaitGroup
	for i := range ends {
		var lease *distlock.Lease
		// A busy machine may take longer for an answer than the lock would last.
		if err := answered(func() (err error) {
			lease, err = lockers[i%len(lockers)].Acquire(t.Context(), fmt.Sprint("holdersCutOff-", path.Base(t.Name()), "-", i))
			return err
		}); err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		key := lease.Key()
		if _, err := left(t.Context(), key); err != nil { // connects
			t.Fatal(err)
		}
		told.Go(func() {
			<-lease.Context().Done()
			e := &ends[i]
			e.told = time.Now()
			var err error
			e.left, err = left(t.Context(), key)
			e.asked = time.Now()
			if cause := context.Cause(lease.Context()); err != nil || !errors.Is(cause, distlock.ErrLost) {
				t.Errorf("holder %d was told %v; the server: %v", i, cause, err)
			}
		})
		<-tick.C
	}
	network.Cut()
	defer network.Heal()
	told.Wait()
}

// operation is what can be cancelled half-way: it is prepared, and then run under a context.
type operation func(ctx context.Context, l *distlock.Locker, held *distlock.Lease, key string) (*distlock.Lease, error)

var operations = map[string]operation{
	"acquire": func(ctx context.Context, l *distlock.Locker, _ *distlock.Lease, key string) (*distlock.Lease, error) {
		return l.Acquire(ctx, key)
	},
	"extend": func(ctx context.Context, _ *distlock.Locker, held *distlock.Lease, _ string) (*distlock.Lease, error) {
		return held, held.Extend(ctx, time.Minute)
	},
	"ask": func(ctx context.Context, l *distlock.Locker, held *distlock.Lease, key string) (*distlock.Lease, error) {
		_, err := fencing.Ask(ctx, l, key, driver.AskRequest{Fence: held.Fence()})
		return held, err
	},
	"release": func(ctx context.Context, _ *distlock.Locker, held *distlock.Lease, _ string) (*distlock.Lease, error) {
		return nil, held.Release(ctx)
	},
}

// operations are those of the service.
func (s *service) operations(t *testing.T) map[string]operation {
	all := maps.Clone(operations)
	if _, asks := driver.As[driver.Asker](fencing.Driver(s.locker(t))); !asks {
		delete(all, "ask")
	}
	return all
}

// The context ends at the first, second, … read or write of a connection, on which everything takes
// its time. The call returns at once, and what it may have left is gone soon.
func cancelledAnywhere(t *testing.T, s *service) {
	others := s.locker(t, withTTL(20*time.Second))
	operations := s.operations(t)
	operations["wait"] = waits(s)
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cancelled, more := 0, true
			for n := int64(1); more && !t.Failed(); n++ {
				unlessStalled(t, fmt.Sprint("cancelled-", name, "-", n), func(t testing.TB, key string) {
					network := faultnet.NewNet(t)
					ctx, cancel := context.WithCancel(t.Context())
					var armed atomic.Bool
					var count, reached atomic.Int64
					dial := faultnet.Dialer(network.Dial, func(int) error {
						if armed.Load() && count.Add(1) == n {
							reached.Store(time.Now().UnixNano())
							cancel()
						}
						return nil
					})
					l := s.locker(t, dialedBy(dial), withTTL(20*time.Second))
					var held *distlock.Lease
					switch name {
					case "acquire":
					case "wait":
						held = mustAcquire(t, others, key)
						if _, err := l.Inspect(t.Context(), key); err != nil { // to connect is part of acquire
							t.Fatal(err)
						}
					default:
						held = mustAcquire(t, l, key)
					}
					network.Latency(prompt / 2)
					armed.Store(true)
					lease, err := run(ctx, l, held, key)
					if at := time.Unix(0, reached.Load()); count.Load() >= n && !soon(at, 0) {
						t.Errorf("%s, I/O %d: it returned %s late", name, n, time.Since(at))
					}
					armed.Store(false)
					network.Latency(0)
					cancel()
					if name == "wait" {
						s.queueGone(t, key)
						mustRelease(t, held)
					}
					switch {
					case err == nil && lease != nil:
						mustRelease(t, lease)
					case err == nil:
					case errors.Is(err, context.Canceled) && count.Load() >= n:
						cancelled++
						if name == "extend" || name == "ask" {
							mustRelease(t, held)
						}
					default:
						t.Errorf("%s, I/O %d: %v", name, n, err)
					}
					s.gone(t, key)
					more = count.Load() >= n // or the call needs fewer
				})
			}
			t.Logf("%s was cancelled at %d of its reads and writes", name, cancelled)
			if cancelled == 0 {
				t.Errorf("%s: it was never cancelled", name)
			}
		})
	}
}

// The request of a call that was cancelled reaches the server when everything is over.
func cancelledPacketIsLate(t *testing.T, s *service) {
	for name, run := range s.operations(t) {
		key := "late-" + name
		network := faultnet.NewNet(t)
		l := s.locker(t, dialedBy(network.Dial), withTTL(20*time.Second))
		warm := mustAcquire(t, l, key) // connections are open, and scripts known
		if err := warm.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, warm)
		var held *distlock.Lease
		if name != "acquire" {
			held = mustAcquire(t, l, key)
		}

		what := s.calls() // all that follows
		if name == "acquire" {
			what = s.acquires() // alone: what cleans up after them comes through
		}
		packet := network.HoldRequests(faultnet.Containing(what))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(prompt, cancel)
		start := time.Now()
		_, err := run(ctx, l, held, key)
		if !soon(start, prompt) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after %s, cancelled after %s", name, err, time.Since(start), prompt)
		}
		packet.Wait(1)
		if name == "acquire" {
			s.gone(t, key)
		}
		packet.Release()
		if name == "extend" || name == "ask" {
			mustRelease(t, held)
		}
		s.gone(t, key)
		if servers.Within(200*time.Millisecond, func() bool { reply, err := s.asked(isHeld, key); return err != nil || reply != "0" }) {
			t.Errorf("%s: the packet that came late has raised a lock", name)
		}
		next := mustAcquire(t, s.locker(t), key)
		mustRelease(t, next)
	}
}

// The server has done what it was asked, and its answer is lost with the connection.
func repliesLost(t *testing.T, s *service) {
	const ttl = 2 * time.Second
	for name, client := range map[string]setting{"replays": ofRedis(func(*redis.UniversalOptions) {}), "sendsOnce": withoutReplays} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.postgres != nil && name == "replays" {
				return // its client sends everything once
			}
			unlessStalled(t, "repliesLost-"+name, func(t testing.TB, key string) {
				replays := name == "replays"
				network := faultnet.NewNet(t)
				l := s.locker(t, dialedBy(network.Dial), client, withTTL(ttl))
				lost := func() *faultnet.Dropped {
					return network.DropReplies(faultnet.First(1, faultnet.Containing(s.calls())))
				}
				warm := mustAcquire(t, l, key)
				if err := warm.Extend(t.Context(), ttl); err != nil {
					t.Fatal(err)
				}
				mustRelease(t, warm)

				dropped := lost()
				lease, err := l.Acquire(t.Context(), key)
				dropped.Wait(1)
				if err != nil {
					if replays {
						t.Errorf("Acquire: %v", err)
					}
					wants(t, "Acquire", err, distlock.ErrUnavailable)
					s.gone(t, key)
					lease = mustAcquire(t, l, key)
				}
				info, err := l.Inspect(t.Context(), key)
				if err != nil || info.Fence != lease.Fence() {
					t.Errorf("the lease has the fence %d, the server says %d, %v", lease.Fence(), info.Fence, err)
				}

				lost()
				if err := lease.Extend(t.Context(), 2*ttl); err != nil {
					wants(t, "Extend", err, distlock.ErrOutcomeUnknown)
				}
				if err := lease.Extend(t.Context(), ttl); err != nil {
					t.Errorf("the next Extend: %v", err)
				}
				lost().Wait(1) // of a renewal
				keeps(t, lease, ttl+ttl/2)

				lost()
				if err := lease.Release(t.Context()); err != nil {
					if replays {
						t.Errorf("Release: %v", err)
					}
					wants(t, "Release", err, distlock.ErrOutcomeUnknown)
				}
				s.gone(t, key)
			})
		})
	}
}
