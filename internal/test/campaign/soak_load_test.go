package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	instances = 2
	// Each worker begins an operation every period, unless its last one takes longer: 500 a second
	// in all. At most this many wait at once.
	workers = 40
	period  = 80 * time.Millisecond
	// aftermath is for how long calls may fail because a connection was killed.
	aftermath = time.Second
)

// load is an application at work.
type load struct {
	t         testing.TB
	server    *servers.Redis
	leaks     *leaks
	killEvery time.Duration // 0: never
	seed      uint64
	instances []*instance
	seen      *observer

	// calm is held to read by operations, and to write by who wants none.
	calm    sync.RWMutex
	working sync.WaitGroup
	began   time.Time

	operations atomic.Int64
	cut        atomic.Int64 // operations that failed because a connection was killed
	lost       atomic.Int64 // leases
	kills      atomic.Int64
	lastKill   atomic.Int64 // ns since began
	byKind     []atomic.Int64
	reports    atomic.Int64
	free, id   atomic.Int64 // for names and turn IDs in turn
	visits     atomic.Int64
}

func newLoad(t testing.TB, server *servers.Redis, leaks *leaks, killEvery time.Duration, seed uint64) *load {
	l := &load{t: t, server: server, leaks: leaks, killEvery: killEvery, seed: seed, seen: newObserver(t), byKind: make([]atomic.Int64, len(operations))}
	for range instances {
		l.instances = append(l.instances, newInstance(t, server, l.seen))
	}
	return l
}

// start lets the load begin; it goes on until ctx ends.
func (l *load) start(ctx context.Context) {
	l.began = time.Now()
	for n := range workers {
		l.working.Go(func() {
			random := stream(l.seed, fmt.Sprint("soak ", n))
			pause(ctx, period*time.Duration(n)/workers)
			l.every(ctx, period, func() { l.operate(random) })
		})
	}
	for n := range longNames {
		l.working.Go(func() { l.holdLong(ctx, l.instances[n%instances], longName(n)) })
	}
	if l.killEvery > 0 {
		l.working.Go(func() { l.every(ctx, l.killEvery, l.kill) })
	}
}

// every calls do again and again until ctx ends, but not while the load rests.
func (l *load) every(ctx context.Context, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.calm.RLock()
			do()
			l.calm.RUnlock()
		}
	}
}

// rest runs f while no operation is under way.
func (l *load) rest(f func()) {
	l.calm.Lock()
	defer l.calm.Unlock()
	time.Sleep(50 * time.Millisecond) // for what runs in the background after a call
	f()
}

// end returns when all is closed, and reports the operations. The load's time must be over.
func (l *load) end() {
	l.working.Wait()
	took := time.Since(l.began)
	for _, in := range l.instances {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := in.locker.Close(ctx); err != nil {
			l.t.Errorf("Close: %v", err)
		}
		cancel()
		if err := in.client.Close(); err != nil {
			l.t.Errorf("Close of a client: %v", err)
		}
	}
	n := l.operations.Load()
	many := n >= 1500 // fewer may lack the rare ones
	var done []string
	for i, k := range operations {
		of := l.byKind[i].Load()
		if done = append(done, fmt.Sprintf("%d %s", of, k.name)); of == 0 && many {
			l.t.Errorf("there was no operation: %s", k.name)
		}
	}
	l.t.Logf("%d operations in %s, %.0f a second: %s", n, took.Round(time.Second), float64(n)/took.Seconds(), strings.Join(done, ", "))
	o := l.seen
	l.t.Logf("%d hand-overs in the process and %d by Redis, %d renewals, %d acquisitions cancelled", o.local.Load(), o.remote.Load(),
		o.renewals.Load(), o.cancelled.Load())
	l.t.Logf("%d connections were killed, and %d operations failed because of that; %d leases were lost",
		l.kills.Load(), l.cut.Load(), l.lost.Load())
	// A lease after a handoff, before its first renewal, may last for 1 s. A machine that stands
	// for longer loses it.
	if l.lost.Load() > 1+n/10_000 {
		l.t.Error("more than one lease in 10,000 operations was lost")
	}
	if many && (min(o.local.Load(), o.remote.Load(), o.renewals.Load(), o.cancelled.Load()) == 0 || l.killEvery > 0 && l.kills.Load() == 0) {
		l.t.Error("this tests less than it should")
	}
}

// operate makes one operation of a kind that is drawn.
func (l *load) operate(random *rand.Rand) {
	draw := random.IntN(100)
	i := 0
	for ; draw >= operations[i].share; i++ {
		draw -= operations[i].share
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Since(l.began)
	err := operations[i].do(&call{load: l, in: l.instances[random.IntN(instances)], random: random}, ctx)
	l.ended(operations[i].name, start, err)
	l.byKind[i].Add(1)
	l.leaks.after(l.operations.Add(1))
}

// ended judges the error of an operation that began at start. A killed connection may cause an
// error or, rarely, a loss.
func (l *load) ended(name string, start time.Duration, err error) {
	switch {
	case err == nil:
	case unavailable(err) && l.kills.Load() > 0 && l.lastKill.Load() > int64(start-aftermath):
		l.cut.Add(1)
	case errors.Is(err, distlock.ErrLost):
		l.lost.Add(1)
	case l.reports.Add(1) <= 20: // the first ones tell all
		l.t.Errorf("%s, after %s: %v", name, (time.Since(l.began) - start).Round(time.Millisecond), err)
	}
}

func unavailable(err error) bool {
	return errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrOutcomeUnknown)
}

// holdLong holds a lock for seconds, again and again, also while the load rests. Others find it busy.
func (l *load) holdLong(ctx context.Context, in *instance, name string) {
	for ctx.Err() == nil {
		start := time.Since(l.began)
		waiting, cancel := context.WithTimeout(context.Background(), patience)
		lease, err := in.locker.Acquire(waiting, name)
		if err == nil {
			pause(ctx, time.Second+rand.N(3*time.Second))
			err = lease.Release(waiting)
		}
		cancel()
		l.ended("a lock that is held for long", start, err)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// kill ends one of the connections that the server has, whosesoever it is.
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
