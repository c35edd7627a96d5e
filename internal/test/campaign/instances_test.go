package campaign

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/campaign/instance"
	"github.com/belugalock/belugalock/internal/test/child"
)

// instancesOn are the topologies of a workload that has instances. Without -minutes, the seed chooses one of
// those of -on.
func instancesOn(topologies []string, seed uint64) []string {
	on := slices.DeleteFunc([]string{"node", "cluster", "postgres"}, func(name string) bool { return !slices.Contains(topologies, name) })
	if n := seed % uint64(max(1, len(on))); *minutes == 0 && len(on) > 0 {
		return on[n : n+1]
	}
	return on
}

// instanceRun is a run of instances of a Runner, and of their clients, which are in this process.
type instanceRun struct {
	t       *testing.T
	program string
	config  instance.Config
	seed    uint64
	over    context.Context // ends when clients begin no more messages

	mu     sync.Mutex
	places []*child.Child  // nil: none
	spared []bool          // it is paused
	calls  []*instanceCall // by N
	wrong  map[string]int  // by kind
	counts map[string]int
}

// instanceCall is a call of an instance. Without an end, its client does not know it.
type instanceCall struct {
	instance.Order
	instance.Reply
	begun, ended int64
	replied      chan struct{}
}

// buildInstances builds the tests of a folder, which serve as instances, in a workspace or without one.
func buildInstances(t *testing.T, folder, workspace string) (program string) {
	info, ok := debug.ReadBuildInfo()
	race := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if workspace != "off" {
		workspace = filepath.Join(root, workspace)
	}
	program = filepath.Join(t.TempDir(), "instance")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-w", "-o", program, fmt.Sprintf("-race=%t", race), ".")
	build.Dir, build.Env = filepath.Join(root, folder), append(os.Environ(), "GOWORK="+workspace)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the instances are not built: %v\n%s", err, out)
	}
	return program
}

// findsWhatIsBroken plays with instances that do something wrong, until a kind of finding is there for each.
func findsWhatIsBroken(t *testing.T, kinds map[string]string, play func(t *testing.T, broken string, try uint64) *instanceRun) {
	sideBySide(t, 2, slices.Sorted(maps.Keys(kinds)), func(t *testing.T, broken string) {
		for try := range uint64(10) { // no fault may come at the moment that shows it
			if play(t, broken, try).wrong[kinds[broken]] > 0 {
				return
			}
		}
		t.Errorf("nothing is %s", kinds[broken])
	})
}

func newInstanceRun(t *testing.T, program string, config instance.Config, seed uint64) *instanceRun {
	return &instanceRun{t: t, program: program, config: config, seed: seed, wrong: make(map[string]int), counts: make(map[string]int)}
}

// play runs the load of clients with kills and pauses until all of them have ended, or for some time. It then
// judges each session, with one instance.
func (r *instanceRun) play(processes, clients, sessions int, lasts time.Duration, client, judge func(n int)) {
	over, end := context.WithCancel(context.Background())
	r.over = over
	begun := time.Now()
	stop := r.instances(processes)
	var calling sync.WaitGroup
	for n := range clients {
		calling.Go(func() { client(n) })
	}
	sent := make(chan struct{})
	go func() { calling.Wait(); close(sent) }()
	r.strike(lasts, stream(r.seed, "instances"), sent)
	end()
	<-sent
	stop()
	took := time.Since(begun)
	stop = r.instances(1)
	for n := range sessions {
		calling.Go(func() { judge(n) })
	}
	calling.Wait()
	stop()
	r.t.Logf("seed %d, %+v: %s; %v; faults: %s", r.seed, r.config, took.Round(100*ms), r.counts, list(r.wrong))
}

// instances keeps some instances running.
func (r *instanceRun) instances(count int) (stop func()) {
	r.places, r.spared = make([]*child.Child, count), make([]bool, count)
	ctx, cancel := context.WithCancel(context.Background())
	var places sync.WaitGroup
	for n := range count {
		places.Go(func() {
			for ctx.Err() == nil && r.instance(ctx, n) {
			}
		})
	}
	return func() { cancel(); places.Wait() }
}

// instance runs an instance until it ends, or until ctx does, and reports whether it ended as it should.
func (r *instanceRun) instance(ctx context.Context, place int) bool {
	c, err := child.StartProgram(context.Background(), r.program, instance.Role, r.config, nil)
	if err != nil {
		r.t.Errorf("an instance does not start: %v", err)
		return false
	}
	r.mu.Lock()
	r.places[place] = c
	r.counts["instances"]++
	r.mu.Unlock()
	defer context.AfterFunc(ctx, c.Stop)()
	for {
		var s instance.Reply
		if c.Receive(&s) != nil {
			break
		}
		r.hear(s)
	}
	err = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places[place] = nil
	if err != nil || strings.Contains(c.Stderr(), "DATA RACE") {
		r.t.Errorf("%v\n%s", err, c.Stderr())
		return false
	}
	return true
}

// hear takes a reply, also one that its client no longer waits for.
func (r *instanceRun) hear(s instance.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Orphan != "" {
		r.find("orphan", "a history: %s", s.Orphan)
	}
	if s.N == 0 {
		return
	}
	c := r.calls[s.N-1]
	if c.Reply, c.ended = s, now(); s.Lost {
		r.counts["losses of a lock"]++
	}
	if s.End == instance.Wrong || s.End == "" { // a Run without an error and without done
		r.find("failure", "%+v: %s", c.Order, s.Err)
	}
	close(c.replied)
}

// find notes something wrong. It needs r.mu.
func (r *instanceRun) find(kind, format string, args ...any) {
	if r.wrong[kind]++; r.config.Broken == "" && r.wrong[kind] <= 20 {
		r.t.Errorf(kind+": "+format, args...)
	}
}

// ask calls an instance, and waits for the reply as long as a client does. Else the End is empty.
func (r *instanceRun) ask(o instance.Order, rng *rand.Rand) instance.Reply {
	c := &instanceCall{begun: now(), replied: make(chan struct{})}
	r.mu.Lock()
	to := r.places[rng.IntN(len(r.places))]
	if to != nil {
		r.calls = append(r.calls, c)
		o.N = len(r.calls)
		c.Order = o
	}
	r.mu.Unlock()
	if to == nil || to.Send(o) != nil {
		return instance.Reply{}
	}
	select {
	case <-c.replied:
		return c.Reply
	case <-to.Done():
	case <-time.After(between(rng, r.config.TTL/2, 2*r.config.TTL)):
	}
	return instance.Reply{}
}

// repeat makes a call until it has its final end.
func (r *instanceRun) repeat(o instance.Order, rng *rand.Rand) (last instance.Reply) {
	for range 200 {
		if last = r.ask(o, rng); last.End != "" && last.End != instance.Again {
			return last
		}
		time.Sleep(between(rng, 0, 50*ms))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.find("failure", "%+v has no end: %+v", o, last)
	return last
}

func (r *instanceRun) hasStruck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts["kills"] > 0 && r.counts["pauses"] > 0 && r.counts["losses of a lock"] > 0
}

// strike kills and pauses instances in turn, for some time and until both have had an effect. A pause is
// longer than the TTL.
func (r *instanceRun) strike(lasts time.Duration, rng *rand.Rand, sent <-chan struct{}) {
	var paused sync.WaitGroup
	defer paused.Wait()
	start := time.Now()
	for n := 0; time.Since(start) < lasts || r.config.Broken == "" && !r.hasStruck() && time.Since(start) < lasts+time.Minute; n++ {
		select {
		case <-sent:
			return
		case <-time.After(between(rng, 200*ms, time.Second)):
		}
		place := rng.IntN(len(r.places))
		r.mu.Lock()
		c := r.places[place]
		switch {
		case c == nil || r.spared[place]:
		case n%2 == 0:
			c.Kill()
			r.counts["kills"]++
		case c.Pause() == nil:
			r.counts["pauses"]++
			r.spared[place] = true
			paused.Go(func() {
				time.Sleep(3 * r.config.TTL / 2)
				r.mu.Lock()
				defer r.mu.Unlock()
				_ = c.Continue() // nothing else ends a paused process
				r.spared[place] = false
			})
		}
		r.mu.Unlock()
	}
}
