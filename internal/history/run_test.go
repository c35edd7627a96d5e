package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

type (
	stringStore  = sessionstore.Store[string, string]
	stringMemory = lockedmemory.LockedMemory[string, string]
)

// run is several goroutines that use a few sessions and locks through several Lockers, as so many processes would.
type run struct {
	sessions []string
	names    []string // of locks beside them
}

// party is one of them.
type party struct {
	name   string
	locker *distlock.Locker
	store  *stringStore
	memory *stringMemory
}

type sessionKey struct{}

func keyOf(ctx context.Context) (string, error) {
	key, _ := ctx.Value(sessionKey{}).(string)
	return key, nil
}

// least is how many steps each goroutine takes, however slow the machine is: enough for every outcome to occur.
const least = 60

// do makes a store for each Locker, runs the parties, and checks what they have recorded.
func (r *run) do(t *testing.T, lockers []*distlock.Locker, store func(int) *stringStore) {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	var working sync.WaitGroup
	stop := time.Now().Add(time.Second)
	for i, l := range lockers {
		p := party{name: fmt.Sprint("process-", i), locker: l, store: store(i)}
		var err error
		if p.memory, err = lockedmemory.New(p.store, l, keyOf, nil); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(dir, p.name+".jsonl"))
		rec, err := Create(paths[i], p.name)
		if err != nil {
			t.Fatal(err)
		}
		var own sync.WaitGroup
		for g := range 3 {
			own.Go(func() {
				for n := 0; n < least || time.Now().Before(stop); n++ {
					p.step(t, r, rec, fmt.Sprintf("%d-%d-%d", i, g, n))
				}
			})
		}
		working.Go(func() {
			own.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := errors.Join(p.locker.Close(ctx), rec.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	ops, err := ReadFiles(paths...)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for _, o := range ops {
		outcome := o.Outcome
		if outcome == Unknown {
			outcome = "unknown"
		}
		counts[fmt.Sprintf("%s %s", o.Kind, outcome)]++
	}
	start := time.Now()
	opts := Options{Directory: os.Getenv("HISTORY_PAGES")}
	leases, sessions := CheckLeases(ops, opts), CheckSessions(ops, opts)
	t.Logf("%d operations were checked within %s: %v", leases.Ops+sessions.Ops, time.Since(start).Round(time.Millisecond), counts)
	if err := errors.Join(leases.Err(), sessions.Err()); err != nil {
		t.Error(err)
	}
	for _, kind := range []string{"acquire ok", "release ok", "release unknown", "load ok", "save ok", "save unknown", "clear ok"} {
		if counts[kind] == 0 {
			t.Errorf("there was no %s", kind)
		}
	}
	if len(ops) < 300 {
		t.Errorf("there were only %d operations", len(ops))
	}
}

// step does one thing of many. Half of them are in a hurry, and leave at some moment.
func (p *party) step(t *testing.T, r *run, rec *Recorder, name string) {
	key := r.sessions[rand.N(len(r.sessions))]
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), sessionKey{}, key), 10*time.Second)
	if rand.N(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
	}
	defer cancel()
	memory := Memory{p.memory, rec, key}
	switch rand.N(8) {
	case 0, 1:
		h, err := rec.Acquire(ctx, p.locker, r.names[rand.N(len(r.names))])
		if err != nil {
			return
		}
		time.Sleep(rand.N(time.Millisecond))
		h.Check()
		p.expected(t, h.Release(ctx))
	case 2:
		if rand.N(2) == 0 {
			_, err := memory.Load(ctx)
			p.expected(t, err)
			return
		}
		name := r.names[0]
		p.expected(t, rec.Do(ctx, name, func(ctx context.Context) (*distlock.Lease, bool) { return p.locker.FromContext(ctx, name) },
			func(ctx context.Context, fn func(context.Context) error) error { return p.locker.Do(ctx, name, fn) },
			func(ctx context.Context, h *Held) error { h.Check(); return nil }))
	case 3:
		p.save(t, ctx, memory, name)
	case 4:
		if rand.N(4) == 0 {
			p.expected(t, memory.Clear(ctx))
		}
	default:
		var over context.Context
		p.expected(t, rec.Do(ctx, key, func(ctx context.Context) (*distlock.Lease, bool) { return lockedmemory.Lease(ctx) }, p.memory.Turn,
			func(ctx context.Context, h *Held) error {
				over = ctx
				if _, err := memory.Load(ctx); err != nil {
					return err
				}
				time.Sleep(rand.N(time.Millisecond))
				h.Check()
				for n := range rand.N(3) {
					p.save(t, ctx, memory, fmt.Sprint(name, "-", n))
				}
				if rand.N(20) == 0 {
					return memory.Clear(ctx)
				}
				return nil
			}))
		if over != nil && rand.N(4) == 0 { // past all checks, as a process that was stopped
			late, cancel := context.WithTimeout(context.WithoutCancel(over), time.Second)
			defer cancel()
			err := Memory{p.store, rec, key}.Save(late, name+"-late")
			p.expected(t, err)
		}
	}
}

// save saves, and repeats that if it has a turn ID.
func (p *party) save(t *testing.T, ctx context.Context, m Memory, entry string) {
	named := rand.N(2) == 0
	if named {
		ctx = lockedmemory.WithTurnID(ctx, entry)
	}
	hasty, cancel := ctx, context.CancelFunc(func() {})
	if rand.N(3) == 0 {
		hasty, cancel = context.WithTimeout(ctx, rand.N(time.Millisecond))
	}
	defer cancel()
	err := m.Save(hasty, entry)
	if p.expected(t, err); err != nil && named {
		p.expected(t, m.Save(ctx, entry))
	}
}

func (p *party) expected(t *testing.T, err error) {
	for _, e := range []error{context.Canceled, context.DeadlineExceeded, distlock.ErrUnavailable, distlock.ErrLost, distlock.ErrNotAcquired,
		distlock.ErrNotHeld} {
		if errors.Is(err, e) {
			return
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func someSessions() *run {
	return &run{sessions: []string{"s0", "s1", "s2", "s3"}, names: []string{"n0", "n1"}}
}

func TestRun_memory(t *testing.T) {
	driver := memlock.NewDriver()
	var lockers []*distlock.Locker
	for range 3 {
		l, err := distlock.New(driver, nil)
		if err != nil {
			t.Fatal(err)
		}
		lockers = append(lockers, l)
	}
	s, err := memstore.New(keyOf, sessionstore.JSON[string]{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	someSessions().do(t, lockers, func(int) *stringStore { return s })
}

func TestRun_redis(t *testing.T) {
	srv := testservers.StartRedis(t)
	var lockers []*distlock.Locker
	var clients []*redis.Client
	for i := range 3 {
		client := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: i%2 == 0})
		t.Cleanup(func() { client.Close() })
		l, err := redislock.New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		lockers, clients = append(lockers, l), append(clients, client)
	}
	someSessions().do(t, lockers, func(i int) *stringStore {
		s, err := redisstore.New(clients[i], keyOf, sessionstore.JSON[string]{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
