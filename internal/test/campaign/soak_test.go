package campaign

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

var (
	out  = flag.String("out", "", "write the samples to this `file`, as CSV")
	leak = flag.Int64("leak", 0, "leak one of everything every so many operations; 0: never")
)

// soakPlan is what a run is to do.
type soakPlan struct {
	lasts, warmUp time.Duration
	samples       int           // after the warm-up; it takes longer if there are fewer
	every         time.Duration // between samples
	leakEvery     int64         // operations; 0: never
	killEvery     time.Duration // a connection; 0: never
	out           string        // file; none
	seed          uint64
}

// short is too short to tell growth from chance, but by a leak that is large.
var short = soakPlan{lasts: 4 * time.Second, warmUp: time.Second, every: 250 * time.Millisecond, killEvery: time.Second}

// soak keeps up a steady load for some time, or for seconds, and then fails if something grows.
func soak(t *testing.T, lasts time.Duration, seed uint64) {
	p := short
	if lasts > 0 {
		p.lasts, p.warmUp, p.every = lasts, max(lasts/4, 20*time.Second), min(5*time.Second, lasts/60)
	}
	p.seed, p.out, p.leakEvery = seed, *out, *leak
	samples := p.run(t)
	if lasts == 0 {
		return
	}
	verdict, err := judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("after a warm-up of %s:\n%s", p.warmUp, verdict)
	for _, g := range verdict {
		if !g.flat() {
			t.Errorf("%s", g)
		}
	}
}

// The verdict sees a leak in every series, and how large it is.
func TestSoak_reportsLeaks(t *testing.T) {
	p := short
	p.lasts, p.samples, p.leakEvery, p.killEvery = 3*time.Second, 2*enough, 5, 0
	samples := p.run(t)
	verdict, err := judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", verdict)
	after := measured(samples)
	operations := after[len(after)-1].operations - after[0].operations
	for _, g := range verdict {
		leaked := float64(operations/p.leakEvery) * g.series.leak
		if g.flat() || g.growth < leaked/2 {
			t.Errorf("%.0f were leaked, and the verdict is: %s", leaked, g)
		}
	}
}

// run keeps the load up for its time, and checks that nothing is left of it.
func (p soakPlan) run(t *testing.T) []sample {
	// Redis remembers slow commands, up to 128 of them, which would look like growth on a slow machine.
	server := servers.StartRedis(t, "--slowlog-log-slower-than", "-1")
	leaks := newLeaks(t, server, p.leakEvery)
	l := newLoad(t, server, leaks, p.killEvery, p.seed)
	r := newSampler(t, server, p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.start(ctx)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < p.lasts || len(measured(r.samples)) < p.samples && !t.Failed(); {
		<-tick.C
		l.rest(func() { r.sample(l.operations.Load()) })
	}
	cancel()
	l.end()
	leaks.end()
	r.close()
	if !t.Failed() {
		// Of a process that has closed its Lockers nothing should need that long.
		nothingLeft(t, server, soakTTL+time.Second)
	}
	return r.samples
}
