package sweeps

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

var kills = flag.Int("kills", 100, "how many processes TestSubmit_killed kills, on each service")

const (
	atOnce      = 32 // sessions
	killableTTL = time.Second
	never       = 1 << 30
)

// killable is a process that dies at a point: no request of it is sent from then on, or no reply read.
type killable struct {
	*point
	memory *lockedmemory.LockedMemory[string, string]
	close  func()
	put    atomic.Bool // a Put was accepted
	// ofDrivers: the operations are calls of drivers, which take effect before the death, or do not.
	ofDrivers bool
}

func (*killable) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (k *killable) End(_ context.Context, op *distlock.Operation) {
	if op.Name == lockedmemory.OpPut && op.Err == nil {
		k.put.Store(true)
	}
}

func (k *killable) options() distlock.Options {
	return distlock.Options{TTL: killableTTL, Logger: quiet(), Observer: k}
}

// furnish makes the memory of a process. closing closes its client.
func (k *killable) furnish(t *testing.T, locker *distlock.Locker, err error, store *sessionstore.Store[string, string], failed error, closing func()) {
	if err = errors.Join(err, failed); err == nil {
		k.memory, err = lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.close = func() {
		_ = locker.Close(context.Background()) // that of a dead process fails
		closing()
	}
}

// dial makes connections, of which each read and write goes through the point.
func (k *killable) dial() faultnet.DialFunc {
	return faultnet.Dialer(nil, func(int) error {
		if k.hit() {
			return io.EOF
		}
		return nil
	})
}

// silent keeps the clients of the dead from writing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// A process dies at each request of its Submit, before or after it. Another process submits the same question,
// or its own. Then a third one sweeps. An accepted question is answered once, others at most once. All callers
// get the stored answer, and no question is pending.
func TestSubmit_killed(t *testing.T) {
	redis.SetLogger(silent{})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			service := memlock.NewDriver()
			store, err := memstore.NewDriver(nil)
			if err != nil {
				t.Fatal(err)
			}
			killsAll(t, nil, func(k *killable) {
				k.ofDrivers = true
				opts := k.options()
				locker, err := distlock.New(&locks{service, k.point}, &opts)
				inner, failed := sessionstore.New(&sessions{store, k.point}, lockedmemory.SessionKey, sessionstore.JSON[string]{}, nil)
				k.furnish(t, locker, err, inner, failed, func() {})
			})
		})
	})
	for _, name := range []string{"node", "cluster"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := servers.StartTopology(t, name)
			killsAll(t, service, func(k *killable) {
				opts := k.options()
				client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: service.Addrs(), Dialer: k.dial(), ContextTimeoutEnabled: true, DialerRetries: 1})
				locker, err := redislock.New(client, &opts)
				store, failed := redisstore.New(client, lockedmemory.SessionKey, sessionstore.JSON[string]{}, nil, nil)
				k.furnish(t, locker, err, store, failed, func() { _ = client.Close() })
			})
		})
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		database := migrated.Database(t, servers.StartPostgres(t, "max_connections=400"))
		killsAll(t, nil, func(k *killable) {
			config, err := pgxpool.ParseConfig(database.URL())
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns, config.ConnConfig.DialFunc = 2, k.dial()
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			locker, err := pglock.New(t.Context(), pool, &pglock.Options{Options: k.options()})
			store, failed := pgstore.New(pool, lockedmemory.SessionKey, sessionstore.JSON[string]{}, nil)
			k.furnish(t, locker, err, store, failed, pool.Close)
		})
	})
}

// submitted is one session, and its callers.
type submitted struct {
	session string
	callers [2]caller
}

type caller struct {
	id       string
	n        int // of the operation in which it dies
	died     bool
	accepted bool
	answer   []string
	err      error
}

// killsAll kills processes that open makes. Those that survive submit again.
func killsAll(t *testing.T, service *servers.Topology, open func(k *killable)) {
	alive := make(chan *killable, 2*atOnce)
	defer func() {
		for len(alive) > 0 {
			(<-alive).close()
		}
	}()
	call := func(session string, c *caller, answer string) (operations int) {
		var k *killable
		select {
		case k = <-alive:
		default:
			k = &killable{point: &point{kind: kind{onwards: true, dies: true, cancels: true, err: errBroken}}}
			open(k)
		}
		ctx, cancel := context.WithCancel(lockedmemory.WithSession(t.Context(), session))
		defer cancel()
		k.n, k.count, k.cancel = c.n, 0, cancel
		if k.ofDrivers {
			k.n, k.kind.effect = c.n/2, c.n%2 > 0
		}
		k.put.Store(false)
		k.arm(true)
		box, err := inbox.New(k.memory, nil)
		if c.err = err; err == nil {
			c.answer, c.err = box.Submit(ctx, c.id, "question "+c.id, func(context.Context, []lockedmemory.Question[string]) ([]string, error) {
				return []string{answer}, nil
			})
		}
		k.arm(false)
		if operations = k.count; k.ofDrivers {
			operations *= 2 // with effect, and without
		}
		if c.died, c.accepted = k.wasReached(), k.put.Load(); c.died {
			k.close()
		} else {
			alive <- k
		}
		return operations
	}
	requests := 0
	for n := range 2 { // the first one makes a connection
		patiently(t, func() error {
			c := caller{id: fmt.Sprint(n), n: never}
			requests = call("first", &c, "answer")
			return c.err
		})
	}
	sound := <-alive
	defer sound.close()
	box, err := inbox.New(sound.memory, nil)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func() error {
		_, err := box.Sweep(t.Context(), func(context.Context, []lockedmemory.Question[string]) ([]string, error) {
			return []string{"of a Sweep"}, nil
		})
		return err
	}
	killed, accepted, together, left, slow := 0, 0, 0, 0, 0
	for round := 0; killed < *kills && !t.Failed(); {
		all := make([]submitted, 2*atOnce)
		var running, sweeping sync.WaitGroup
		var over atomic.Bool
		sweeps := round/len(all)%2 > 0
		if sweeps {
			sweeping.Go(func() {
				for ; !over.Load(); time.Sleep(20 * time.Millisecond) {
					_ = sweep()
				}
			})
		}
		free := make(chan struct{}, atOnce)
		for i := range all {
			// The first process dies in each operation in turn; in each third round, the second one dies, too.
			most, s := requests*3/2, &all[i] // two that meet make more
			*s = submitted{fmt.Sprint("s", round), [2]caller{{id: "a", n: round / 2 % most}, {id: []string{"a", "b"}[round%2], n: rand.IntN(most)}}}
			if round%3 > 0 {
				s.callers[1].n = never
			}
			round++
			free <- struct{}{}
			running.Go(func() {
				var both sync.WaitGroup
				for i := range s.callers {
					both.Go(func() {
						time.Sleep(time.Duration(i) * rand.N(5*time.Millisecond))
						call(s.session, &s.callers[i], fmt.Sprint("of process ", i))
					})
				}
				both.Wait()
				<-free
			})
		}
		running.Wait()
		over.Store(true)
		sweeping.Wait()
		time.Sleep(killableTTL) // what the dead have sent has arrived
		patiently(t, sweep)
		for _, s := range all {
			several, pending := s.judge(t, sound.memory)
			if together, left = together+several, left+pending; pending > 0 && (!sweeps || service == nil || service.Cluster == nil) {
				t.Errorf("%+v: a question is pending", s)
			}
			for _, c := range s.callers {
				if c.died {
					killed++
				} else if c.err != nil {
					slow++
				}
				if c.accepted {
					accepted++
				}
			}
		}
		for name, err := range sound.memory.Inboxes(t.Context()) {
			t.Errorf("after the Sweep, there is the inbox %q, %v", name, err)
		}
	}
	t.Logf("a Submit has %d operations; %d processes were killed; %d questions were accepted; %d were answered with another one; %d are left; "+
		"%d living callers were too slow", requests, killed, accepted, together, left, slow)
	if service != nil {
		keys := ""
		for _, master := range service.Masters() {
			of, err := master.Do("KEYS", "*inbox*")
			if keys += of + " "; err != nil {
				t.Fatal(err)
			}
		}
		if n := len(strings.Fields(keys)); n != left {
			t.Errorf("of %d questions, there are left the keys %s", left, keys)
		}
	}
}

// patiently repeats a call of a machine that may be too slow for the TTL.
func patiently(t *testing.T, do func() error) {
	var err error
	if !servers.Within(20*time.Second, func() bool { err = do(); return err == nil }) {
		t.Fatal(err)
	}
}

// judge compares the stored answers with those of the callers. left is 1 if a question is pending. In a Cluster, a
// Sweep may have removed the session from the index before a Put that no caller knows to be accepted.
func (s *submitted) judge(t *testing.T, memory *lockedmemory.LockedMemory[string, string]) (several, left int) {
	ctx := lockedmemory.WithSession(t.Context(), s.session)
	stored := make(map[string][]string)
	wrong := func(format string, args ...any) {
		t.Errorf("%+v: %s; there stands %q", s, fmt.Sprintf(format, args...), stored)
	}
	for e, err := range memory.Forward(ctx, lockedmemory.Place{}) {
		if err != nil {
			t.Fatal(err)
		}
		for n, id := range append([]string{e.ID}, e.Also...) {
			if stored[id] != nil || e.Messages[n] != "question "+id || len(e.Answer()) != 1 {
				wrong("there is %+v", e)
			}
			stored[id] = e.Answer()
		}
		several += len(e.Also)
	}
	pending, err := memory.Pending(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.callers {
		if e, known, err := memory.Answered(ctx, c.id); err != nil || known != (stored[c.id] != nil) || known && !slices.Equal(e.Answer(), stored[c.id]) {
			wrong("Answered says %+v, %t, %v", e, known, err)
		}
		switch {
		case c.err != nil && !c.died && !errors.Is(c.err, distlock.ErrLost) && !errors.Is(c.err, distlock.ErrUnavailable): // on a slow machine
			wrong("a living caller of %s has %v", c.id, c.err)
		case c.accepted && stored[c.id] == nil:
			wrong("%s was accepted", c.id)
		case c.err == nil && !slices.Equal(c.answer, stored[c.id]):
			wrong("a caller of %s has %q", c.id, c.answer)
		}
	}
	return several, min(1, len(pending))
}
