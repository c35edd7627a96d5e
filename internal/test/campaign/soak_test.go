package campaign

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/tracing"
)

const (
	instances = 2
	// Each worker begins an operation every period, unless its last one takes longer: 500 a second
	// in all. At most this many wait at once.
	workers = 40
	period  = 80 * time.Millisecond
	// A machine may stand for some seconds, and no lease may be lost.
	soakTTL = 10 * time.Second
	// forget is after how long turn IDs and idle sessions go.
	forget     = 3 * time.Second
	shownTurns = 10
	// The population of names. All of them are in use again and again: the 300 free ones within 3 s, the
	// sessions with breaks within 8 s, of which they are idle for 7 s.
	freeNames, hotNames, longNames, openedNames = 300, 2, 16, 20
	lasting, visitors                           = 40, 60
	visitLength                                 = 4 // turns
)

var leak = flag.Int64("leak", 0, "leak one of everything every so many operations; 0: never")

// soakPlan is what a run is to do.
type soakPlan struct {
	lasts, warmUp time.Duration
	samples       int           // after the warm-up; it takes longer if there are fewer
	every         time.Duration // between samples
	leakEvery     int64         // operations; 0: never
	killEvery     time.Duration // a connection; 0: never
	seed          uint64
}

// short is too short to tell growth from chance, but by a leak that is large.
var short = soakPlan{lasts: 4 * time.Second, warmUp: time.Second, every: 250 * time.Millisecond, killEvery: time.Second}

// soakWork keeps up a steady load for some time, or for seconds, and then fails if something grows.
func soakWork(t *testing.T, lasts time.Duration, seed uint64) {
	p, long := short, lasts > time.Minute
	if p.lasts = max(p.lasts, lasts); long {
		p.warmUp, p.every = max(lasts/4, 20*time.Second), min(5*time.Second, lasts/60)
	}
	p.seed, p.leakEvery = seed, *leak
	samples := p.run(t)
	if !long {
		return
	}
	verdict, err := judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range verdict {
		// Caches that fill in the first minutes look like growth.
		if t.Log(g); !g.flat() && lasts >= 10*time.Minute {
			t.Errorf("%s", g)
		}
	}
}

type load struct {
	plan      soakPlan
	t         testing.TB
	server    *servers.Redis
	leaks     leaks
	instances []*soakInstance

	// calm is held to read by operations, and to write by who wants none.
	calm    sync.RWMutex
	working sync.WaitGroup
	began   time.Time

	operations, kills, lost, reports atomic.Int64
	lastKill                         atomic.Int64   // ns since began
	byKind                           []atomic.Int64 // as operations
	free, id, visits                 atomic.Int64   // for names and turn IDs in turn
}

type soakInstance struct {
	client  *redis.Client
	options *distlock.Options
	locker  *distlock.Locker
	talks   *remarks // sessions that go on and on
	visits  *remarks // sessions that expire
}

type (
	remark  struct{ Role, Text string }
	remarks = lockedmemory.LockedMemory[remark, remark]
)

func newInstance(t testing.TB, server *servers.Redis, seen distlock.Observer) *soakInstance {
	in := &soakInstance{
		// The pool is always full, or each sample would depend on the connections in use.
		client:  redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, PoolSize: pool, MinIdleConns: pool}),
		options: options("soak", soakTTL, soakTTL/100),
	}
	t.Cleanup(func() { in.client.Close() })
	in.options.Wait, in.options.Observer = patience, seen
	var err error
	if in.locker, err = redislock.New(in.client, in.options); err != nil {
		t.Fatal(err)
	}
	memory := func(keep sessionstore.Retention, options sessionstore.Options) *remarks {
		store, err := redisstore.New(in.client, lockedmemory.SessionKey, sessionstore.JSON[remark]{}, &keep, &options)
		if err != nil {
			t.Fatal(err)
		}
		locked, err := lockedmemory.New(store, in.locker, lockedmemory.SessionKey, nil)
		if err != nil {
			t.Fatal(err)
		}
		return locked
	}
	in.talks = memory(sessionstore.Retention{MaxExchanges: 2 * shownTurns, RememberIDs: forget}, sessionstore.Options{Window: shownTurns})
	in.visits = memory(sessionstore.Retention{IdleTTL: forget}, sessionstore.Options{})
	return in
}

// run keeps the load up for its time, and checks that nothing is left of it.
func (p soakPlan) run(t *testing.T) (samples []sample) {
	// Redis remembers slow commands, up to 128 of them, which would look like growth on a slow machine.
	server := servers.StartRedis(t, "--slowlog-log-slower-than", "-1")
	l := &load{plan: p, t: t, server: server, leaks: leaks{stop: make(chan struct{})}, byKind: make([]atomic.Int64, len(operations))}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewNoopExporter()))
	defer provider.Shutdown(context.Background())
	seen, err := tracing.New(tracing.WithTracerProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	for range instances {
		l.instances = append(l.instances, newInstance(t, server, seen))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.start(ctx)
	// The room for all samples is there from the start, so that they are no growth themselves.
	samples = make([]sample, 0, p.lasts/p.every+1)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for time.Since(l.began) < p.lasts || len(measured(samples)) < p.samples && !t.Failed() {
		<-tick.C
		l.calm.Lock()
		time.Sleep(50 * time.Millisecond) // for what runs in the background after a call
		s, err := takeSample(server, time.Since(l.began))
		s.warmUp, s.operations = s.at < p.warmUp, l.operations.Load()
		l.calm.Unlock()
		if samples = append(samples, s); err != nil {
			t.Errorf("the server: %v", err)
			break
		}
	}
	cancel()
	l.end()
	l.leaks.end()
	if !t.Failed() {
		// Of a process that has closed its Lockers nothing should need that long.
		nothingLeft(t, server, soakTTL+time.Second)
	}
	return samples
}

// start lets the load begin; it goes on until ctx ends.
func (l *load) start(ctx context.Context) {
	l.began = time.Now()
	calmly := func(period time.Duration, do func()) {
		every(ctx.Done(), period, func() {
			l.calm.RLock()
			defer l.calm.RUnlock()
			do()
		})
	}
	for n := range workers {
		random := stream(l.plan.seed, fmt.Sprint("soak ", n))
		l.working.Go(func() {
			pause(ctx, period*time.Duration(n)/workers)
			calmly(period, func() { l.operate(random) })
		})
	}
	for n := range longNames { // others find these locks busy, also while the load rests
		l.working.Go(func() {
			for ctx.Err() == nil {
				l.ended("a lock that is held for long", time.Since(l.began), l.instances[n%instances].locker.Do(
					context.Background(), longName(n), func(context.Context) error {
						pause(ctx, time.Second+rand.N(3*time.Second))
						return nil
					}))
			}
		})
	}
	if l.plan.killEvery > 0 {
		l.working.Go(func() { calmly(l.plan.killEvery, l.kill) })
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// end returns when all is closed, and reports the operations. The load's time must be over.
func (l *load) end() {
	l.working.Wait()
	took := time.Since(l.began)
	for _, in := range l.instances {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := errors.Join(in.locker.Close(ctx), in.client.Close())
		if cancel(); err != nil {
			l.t.Errorf("Close: %v", err)
		}
	}
	n := l.operations.Load()
	many := n >= 1500 // fewer may lack the rare ones
	for i, k := range operations {
		if l.byKind[i].Load() == 0 && many {
			l.t.Errorf("there was no operation: %s", k.name)
		}
	}
	l.t.Logf("%d operations in %s; %d connections were killed; %d leases were lost",
		n, took.Round(time.Second), l.kills.Load(), l.lost.Load())
	// A lease after a handoff may last for 1 s. A machine that stands for longer loses it.
	if l.lost.Load() > 1+n/10_000 {
		l.t.Error("more than one lease in 10,000 operations was lost")
	}
	if many && l.plan.killEvery > 0 && l.kills.Load() == 0 {
		l.t.Error("no connection was killed")
	}
}

func (l *load) operate(random *rand.Rand) {
	draw, i := random.IntN(100), 0
	for ; draw >= operations[i].share; i++ {
		draw -= operations[i].share
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Since(l.began)
	err := operations[i].do(&call{l, l.instances[random.IntN(instances)], random}, ctx)
	l.ended(operations[i].name, start, err)
	l.byKind[i].Add(1)
	if n := l.operations.Add(1); l.plan.leakEvery > 0 && n%l.plan.leakEvery == 0 {
		l.leaks.add(l.t, l.server, n)
	}
}

// aftermath is for how long calls may fail because a connection was killed.
const aftermath = time.Second

// ended judges the error of an operation. A killed connection may cause one or, rarely, a loss.
func (l *load) ended(name string, start time.Duration, err error) {
	unavailable := errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrOutcomeUnknown)
	switch {
	case err == nil:
	case unavailable && l.kills.Load() > 0 && l.lastKill.Load() > int64(start-aftermath):
	case errors.Is(err, distlock.ErrLost):
		l.lost.Add(1)
	case l.reports.Add(1) <= 20: // the first ones tell all
		l.t.Errorf("%s, after %s: %v", name, (time.Since(l.began) - start).Round(time.Millisecond), err)
	}
}

func (l *load) kill() {
	list, err := l.server.Do("CLIENT", "LIST")
	if err != nil {
		l.t.Errorf("CLIENT LIST: %v", err)
		return
	}
	lines := strings.Split(strings.TrimSpace(list), "\n")
	first, _, _ := strings.Cut(lines[rand.IntN(len(lines))], " ")
	l.lastKill.Store(int64(time.Since(l.began)))
	killed, err := l.server.Do("CLIENT", "KILL", "ID", strings.TrimPrefix(first, "id="))
	l.lastKill.Store(int64(time.Since(l.began)))
	if err != nil {
		l.t.Errorf("CLIENT KILL: %v", err)
	} else if killed != "0" { // it may have gone by itself, as that of CLIENT LIST has
		l.kills.Add(1)
	}
}

func longName(n int) string { return fmt.Sprint("long-", n) }

type call struct {
	*load
	*soakInstance
	random *rand.Rand
}

// operations are the kinds of them, with their share of a hundred. What one expects to fail is no error.
var operations = []struct {
	name  string
	share int
	do    func(*call, context.Context) error
}{
	{"free locks", 24, func(c *call, ctx context.Context) error {
		lease, err := c.locker.Acquire(ctx, c.freeName())
		if err != nil {
			return err
		}
		if c.random.IntN(2) == 0 {
			err = lease.Extend(ctx, 2*soakTTL)
		}
		return errors.Join(err, lease.Release(ctx))
	}},
	{"contended locks", 14, func(c *call, ctx context.Context) error {
		return c.locker.Do(ctx, fmt.Sprint("hot-", c.random.IntN(hotNames)), func(context.Context) error {
			time.Sleep(10 * time.Millisecond) // the work: the lock is held three quarters of the time
			return nil
		})
	}},
	// Of a lock that another worker holds most of the time.
	{"tries", 10, func(c *call, ctx context.Context) error {
		lease, err := c.locker.TryAcquire(ctx, longName(c.random.IntN(longNames)))
		if errors.Is(err, distlock.ErrNotAcquired) {
			return nil
		}
		return errors.Join(err, lease.Release(ctx))
	}},
	{"hasty acquisitions", 10, (*call).leaveEarly},
	{"turns", 16, func(c *call, ctx context.Context) error {
		return c.talks.Turn(c.talk(ctx), func(ctx context.Context) error {
			history, err := c.talks.Load(ctx, "")
			if err != nil {
				return err
			}
			if len(history) > 2*shownTurns {
				return fmt.Errorf("a window of %d turns has %d messages", shownTurns, len(history))
			}
			question, answer := c.exchange()
			return c.talks.Save(ctx, question, answer)
		})
	}},
	{"Saves with an ID", 18, func(c *call, ctx context.Context) error { // half of them twice
		ctx, id := c.talk(ctx), fmt.Sprint("message-", c.id.Add(1))
		question, answer := c.exchange()
		err := c.talks.SaveOnce(ctx, id, question, answer)
		if err == nil && c.random.IntN(2) == 0 {
			err = c.talks.SaveOnce(ctx, id, question, answer)
		}
		return err
	}},
	{"Clears", 1, func(c *call, ctx context.Context) error { return c.talks.Clear(c.talk(ctx)) }},
	// A session has a few turns, and is then left alone until it has expired.
	{"visits", 6, func(c *call, ctx context.Context) error {
		ctx = lockedmemory.WithSession(ctx, fmt.Sprint("visitor-", c.load.visits.Add(1)/visitLength%visitors))
		return c.soakInstance.visits.Turn(ctx, func(ctx context.Context) error {
			if _, err := c.soakInstance.visits.Load(ctx, ""); err != nil {
				return err
			}
			question, answer := c.exchange()
			return c.soakInstance.visits.Save(ctx, question, answer)
		})
	}},
	// Half of them are closed with a lease that is held.
	{"Lockers", 1, func(c *call, ctx context.Context) error {
		locker, err := redislock.New(c.client, c.options)
		if err != nil {
			return err
		}
		lease, err := locker.Acquire(ctx, fmt.Sprint("opened-", c.random.IntN(openedNames)))
		if err == nil && c.random.IntN(2) == 0 {
			err = lease.Release(ctx)
		}
		return errors.Join(err, locker.Close(ctx))
	}},
}

func (c *call) freeName() string { return fmt.Sprint("free-", c.free.Add(1)%freeNames) }

// leaveEarly is cancelled: in the queue, or at any moment of taking a free lock.
func (c *call) leaveEarly(ctx context.Context) error {
	name, patience := longName(c.random.IntN(longNames)), 20*time.Millisecond
	if c.random.IntN(2) == 0 {
		name, patience = c.freeName(), time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Duration(c.random.Int64N(int64(patience))), cancel).Stop()
	lease, err := c.locker.Acquire(ctx, name)
	if err == nil {
		err = lease.Release(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (c *call) talk(ctx context.Context) context.Context {
	return lockedmemory.WithSession(ctx, fmt.Sprint("talk-", c.random.IntN(lasting)))
}

func (c *call) exchange() (question, answer remark) {
	text := strings.Repeat("word ", 10+c.random.IntN(20))
	return remark{"user", text}, remark{"assistant", text}
}
