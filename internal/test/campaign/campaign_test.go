package campaign

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/faultnet"
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
		workers: 4, proxied: 2, goroutines: 6,
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
	version   string // of the servers, with their name
	socket    net.Listener
	register  *register
	ledger    *ledger
	histories *histories
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
	runs     int
	aims     map[int]chan *attempt // that faults wait for, by run
	findings []*finding
	wrong    []*finding // after attribute
	stats    map[*fault]*stat
	log      []string // of strikes
	hits     []*hit   // that have struck
	unseen   int      // waits for keys without any other waiter
	starved  int      // late notices in a process that the machine did not run; known after attribute
	failing  bool     // during a failover
	looks    int      // of guard
}

func newCampaign(t *testing.T, p plan) *campaign {
	c := &campaign{t: t, plan: p, stats: make(map[*fault]*stat), aims: make(map[int]chan *attempt)}
	c.startServers()
	c.windows.ttl = p.ttl
	c.register, c.ledger, c.histories = newRegister(c), newLedger(c), newHistories(c)
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

// addrs are those of all servers.
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
	every(2*time.Second, func() { c.histories.checkUntil(epoch(now()-int64(grace), c.start, c.plan.rotate)) })
	if c.service != nil {
		known, seen := c.service.State(), now()
		every(250*time.Millisecond, func() { known, seen = c.guard(known, seen) })
	}
	c.strikeFor(c.plan.lasts)
	c.took = time.Duration(now() - c.start)
	c.end()
	c.register.overdue(true)
	close(done)
	c.watches.Wait()
	c.ledger.judgeUntil(now(), true)
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

// every calls do at intervals, until done is closed.
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
// timeouts pass. From then on, the acknowledgements of the old master are void. It returns who the masters
// are, and when that was seen.
func (c *campaign) guard(known string, seen int64) (string, int64) {
	c.mu.Lock()
	failing := c.failing
	c.mu.Unlock()
	state, at := c.service.State(), now()
	c.mu.Lock()
	c.looks++
	c.mu.Unlock()
	if state == "" {
		return known, seen
	}
	if !failing && known != "" && state != known {
		v := c.windows.open(replaced, 0, seen-int64(missed))
		c.windows.forget(v, seen-int64(missed), at+int64(c.plan.ttl))
		c.windows.close(v)
		c.mu.Lock()
		c.stat(replaced).times++
		c.mu.Unlock()
		c.say("a master was replaced that was alive")
	}
	return state, at
}

// failOver tells guard that masters are about to be replaced, and when that is over and guard has
// seen the new ones.
func (c *campaign) failOver(under bool) {
	looks := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.looks
	}
	if before := looks(); !under {
		// The first look from now on may have begun before; the second is to be over, with what it
		// has seen noted.
		servers.Within(5*time.Second, func() bool { return looks() > before+2 })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = under
}

// say adds to the log of strikes.
func (c *campaign) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("%9s %s", time.Duration(now()-c.start).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

// keys of an epoch.
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
