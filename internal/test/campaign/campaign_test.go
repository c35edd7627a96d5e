package campaign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// plan is what a campaign on one topology is to do.
type plan struct {
	on                           string
	works                        []string // of mixed
	seed                         uint64
	lasts, ttl, rotate           time.Duration
	calm                         time.Duration // at most, between two faults of one party
	workers, proxied, goroutines int
	strikes                      int      // at most, of each party; 0: as many as there is time for
	faults                       []string // names; nil: all that apply
	hits                         []string // numbers of those that strike; nil: all
	broken                       string
	hammers                      bool
	server                       []string // arguments of the servers
	// The campaign ends after a finding of each of these kinds; nil: it runs on.
	until []string
}

// planFor is the ordinary plan of a topology.
func planFor(on string, seed uint64, lasts time.Duration) plan {
	p := plan{
		on: on, works: mixed, seed: seed, lasts: lasts, ttl: time.Second, rotate: 10 * time.Second, calm: 500 * time.Millisecond,
		workers: 4, proxied: 2, goroutines: 8,
	}
	if lasts > 3*time.Minute {
		p.calm = 3 * time.Second
	}
	return p
}

// campaign is the parent of the workers of one topology.
type campaign struct {
	t         *testing.T
	plan      plan
	service   *servers.Topology // of Redis, or nil
	sessions  *servers.Redis    // of a quorum; nil: the sessions are beside the locks
	postgres  *servers.Postgres // or nil
	database  *servers.PostgresDatabase
	socket    net.Listener
	register  *register
	ledger    *ledger
	histories *histories
	calls     *calls
	slots     []*slot
	windows   windows
	watch     *leakcheck.Watch
	start     int64
	took      time.Duration

	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup
	crew    sync.WaitGroup
	alone   sync.RWMutex // held to write by who strikes alone
	watches sync.WaitGroup

	mu       sync.Mutex
	aims     map[int]chan *attempt // that faults wait for, by run
	findings []*finding
	wrong    []*finding // after attribute
	stats    map[*fault]*stat
	log      []string // of strikes
	hits     []*hit   // that have struck

	counting sync.Mutex
	counts   counts // figures for people

	replacing sync.Mutex // held while a fault replaces a master
	masters   string     // as guard has seen them last, and when
	seen      int64
}

func newCampaign(t *testing.T, p plan) *campaign {
	c := &campaign{t: t, plan: p, stats: make(map[*fault]*stat), aims: make(map[int]chan *attempt), counts: make(counts)}
	c.startServers()
	c.windows.ttl = p.ttl
	c.register, c.ledger, c.histories = newRegister(c), newLedger(c), &histories{c: c, of: make(map[int]map[int64]*history.Op)}
	c.calls = &calls{c: c, of: make(map[string]map[string]*stopCall)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t.Cleanup(c.end)
	var err error
	if c.socket, err = net.Listen("unix", filepath.Join(t.TempDir(), "r")); err != nil {
		t.Fatal(err)
	}
	for n := range p.workers {
		s := &slot{n: n}
		if n < p.proxied {
			s.network, s.via = faultnet.NewNet(t), make(map[string]string)
			for _, addr := range c.addrs() {
				s.via[addr] = s.network.Only(addr).Addr()
			}
		}
		c.slots = append(c.slots, s)
	}
	return c
}

func (c *campaign) addrs() (addrs []string) {
	if c.postgres != nil {
		return []string{c.postgres.Addr()}
	}
	for _, server := range slices.Concat(c.service.Nodes(), c.service.Sentinels()) {
		addrs = append(addrs, server.Addr())
	}
	if c.sessions != nil {
		addrs = append(addrs, c.sessions.Addr())
	}
	return addrs
}

// run returns when the time is over, all workers have ended, and everything is judged.
func (c *campaign) run() {
	c.start, c.watch = now(), leakcheck.NewWatch()
	defer c.watch.Stop()
	c.serving.Add(1)
	go c.serve()
	for _, s := range c.slots {
		c.crew.Add(1)
		go c.fill(s)
	}
	done := make(chan struct{})
	every := func(period time.Duration, do func()) { c.watches.Go(func() { every(done, period, do) }) }
	every(200*time.Millisecond, func() { c.register.overdue(false) })
	every(2*time.Second, func() {
		c.register.sweep(now() - int64(c.plan.rotate) - int64(grace))
		c.ledger.judgeUntil(now()-int64(grace), false)
	})
	every(2*time.Second, func() { c.calls.judgeUntil(now()-int64(grace), false, false) })
	every(2*time.Second, func() { c.histories.checkUntil(epoch(now()-int64(grace), c.start, c.plan.rotate)) })
	if c.service != nil {
		c.masters, c.seen = c.service.State(), now()
		every(250*time.Millisecond, c.guard)
	}
	c.strikeFor(c.plan.lasts)
	c.took = time.Duration(now() - c.start)
	c.end()
	c.register.overdue(true)
	close(done)
	c.watches.Wait()
	c.ledger.judgeUntil(now(), true)
	c.calls.judgeUntil(now(), true, false)
	c.histories.checkUntil(epoch(now(), c.start, c.plan.rotate) + 1)
	c.attribute()
}

// end ends all workers, whatever has happened. A second call does nothing.
func (c *campaign) end() {
	c.cancel()
	c.crew.Wait()
	if c.socket != nil {
		_ = c.socket.Close()
	}
	c.serving.Wait()
}

func every(done <-chan struct{}, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			do()
		}
	}
}

// grace is for how long attempts may go on with a session after its time.
const grace = 15 * time.Second

// guard notices when servers replace a master that no fault has killed: a busy machine lets their
// timeouts pass. From then on, the acknowledgements of the old master are void.
func (c *campaign) guard() {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	state, at := c.service.State(), now()
	if state == "" {
		return
	}
	if c.masters != "" && state != c.masters {
		v := c.windows.open(replaced, 0, c.seen-int64(missed))
		c.windows.forget(v, c.seen-int64(missed), at+int64(c.plan.ttl))
		c.windows.close(v)
		c.mu.Lock()
		c.stat(replaced).times++
		c.mu.Unlock()
		c.say("a master was replaced that was alive")
	}
	c.masters, c.seen = state, at
}

// replaces tells guard that masters are about to be replaced. over tells it that there are new ones.
func (c *campaign) replaces() (over func()) {
	c.replacing.Lock()
	return func() {
		defer c.replacing.Unlock()
		servers.Within(5*time.Second, func() bool {
			c.masters, c.seen = c.service.State(), now()
			return c.masters != "" || c.plan.on == "node"
		})
	}
}

func (c *campaign) count(what string, n int) {
	c.counting.Lock()
	defer c.counting.Unlock()
	c.counts[what] += n
}

func (c *campaign) counted(what string) int {
	c.counting.Lock()
	defer c.counting.Unlock()
	return c.counts[what]
}

func (c *campaign) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("%9s %s", time.Duration(now()-c.start).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

func hotKey(epoch, n int) string { return fmt.Sprintf("e%d/hot-%d", epoch, n) }
func talkOf(epoch, n int) string { return fmt.Sprintf("e%d/talk-%d", epoch, n) }
func noteOf(epoch, n int) string { return fmt.Sprintf("e%d/notes-%d", epoch, n) }

// epochOf is that of a key; -1 for others.
func epochOf(key string) int {
	number, _, ok := strings.Cut(strings.TrimPrefix(key, "e"), "/")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return -1
	}
	return n
}

// deserted reports whether a key may have had no waiter at some time after since.
func (c *campaign) deserted(key string, since int64, bar time.Duration) bool {
	e := epochOf(key)
	over := c.start + int64(e+1)*int64(c.plan.rotate)
	return e >= 0 && now() > over && since+int64(bar) > over || c.ctx.Err() != nil
}

// slot is the place of a worker, which another run takes when one has died.
type slot struct {
	n       int
	network *faultnet.Net // nil: it connects to the servers itself
	via     map[string]string
	started int                    // so many
	worker  atomic.Pointer[worker] // nil: none runs
}

type worker struct {
	run int
	*child.Child
}

func (c *campaign) fill(s *slot) {
	defer c.crew.Done()
	pause := stream(c.plan.seed, fmt.Sprint("pause ", c.plan.on, s.n))
	for c.ctx.Err() == nil {
		w, err := c.startWorker(s)
		if err != nil {
			c.t.Errorf("a worker does not start: %v", err)
			return
		}
		if w.ReceiveWithin(20*time.Second, new(string)) == nil { // or it has ended
			s.worker.Store(w)
		}
		select {
		case <-w.Done():
		case <-c.ctx.Done():
			w.Stop()
			_ = w.Signal(syscall.SIGCONT)
			c.ends(w)
		}
		s.worker.Store(nil)
		c.register.gone(w.run)
		c.ended(w)
		select {
		case <-time.After(between(pause, 0, 200*time.Millisecond)):
		case <-c.ctx.Done():
		}
	}
}

func (c *campaign) startWorker(s *slot) (*worker, error) {
	run := 1 + s.n + s.started*len(c.slots) // so that the seed makes the same of it
	s.started++
	c.count("runs of workers", 1)
	config := config{
		On: c.plan.on, Works: c.plan.works, Via: s.via, Register: c.socket.Addr().String(), Run: run, Seed: c.plan.seed,
		TTL: c.plan.ttl, Start: c.start, Rotate: c.plan.rotate,
		Goroutines: c.plan.goroutines, Punctual: (s.started+s.n)%2 == 0,
		Hammers: c.plan.hammers, Broken: c.plan.broken,
	}
	if c.postgres != nil {
		config.Postgres = c.database.URL()
	} else {
		config.Addrs, config.MasterName = c.storeAddrs(), c.service.MasterName()
		if c.service.Quorum != nil {
			config.Nodes = c.service.Addrs()
		}
	}
	child, err := child.StartRole(context.Background(), "worker", config, nil)
	return &worker{Child: child, run: run}, err
}

// ends waits until a worker that was told to end has done so, or kills it.
func (c *campaign) ends(w *worker) {
	select {
	case <-w.Done():
	case <-time.After(20 * time.Second):
		c.blame(&finding{kind: "failure", at: now(), text: fmt.Sprintf("run %d does not end when it is told to", w.run)})
		_ = w.Signal(syscall.SIGQUIT) // it prints its goroutines
		time.Sleep(200 * time.Millisecond)
		w.Kill()
		<-w.Done()
	}
}

// ended looks at what a worker has left. A kill is no error.
func (c *campaign) ended(w *worker) {
	err, stderr := w.Close(), w.Stderr()
	if err != nil || strings.Contains(stderr, "DATA RACE") {
		c.blame(&finding{kind: "failure", at: now(), text: fmt.Sprintf("run %d has ended with %v\n%s", w.run, err, stderr[max(0, len(stderr)-4000):])})
	}
}

func (w *worker) tell(o order) {
	_ = w.Send(o) // fails if it has ended
}

func (c *campaign) serve() {
	defer c.serving.Done()
	for {
		conn, err := c.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.t.Errorf("the register: %v", err)
			return
		}
		c.serving.Go(func() {
			defer conn.Close()
			for l := newLine(conn); ; {
				var s said
				if l.in.Decode(&s) != nil || l.out.Encode(c.receive(&s)) != nil {
					return // the worker has ended
				}
			}
		})
	}
}

func (c *campaign) receive(s *said) (a answer) {
	switch s.What {
	case sayReached:
		a = c.reached(s)
	case sayEnter:
		a = c.register.enter(s)
	case sayLeave:
		a = c.register.leave(s)
	case sayWrite:
		a = c.register.write(s)
	case sayTrusted:
		c.register.trusted(s)
	case sayAttempt:
		c.ledger.add(s.Attempt)
	case sayCall:
		c.calls.add(s.Call)
	case sayOperation:
		c.histories.add(s)
	case sayWrong:
		c.blame(&finding{
			kind: "failure", key: s.Key, at: now(), asked: s.Began, answered: s.Got,
			text: fmt.Sprintf("run %d: %s", s.Run, s.Text),
		})
	}
	for what, n := range s.Counts {
		c.count(what, n)
	}
	return a
}
