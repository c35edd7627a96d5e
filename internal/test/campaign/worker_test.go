package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

const namespace = "campaign"

// lockKey is where Redis keeps a lock.
func lockKey(key string) string { return namespace + ":" + redislock.HashTag(key) + "lock" }

type (
	memory interface {
		lockedmemory.Memory[message, message]
		SaveOnce(ctx context.Context, id string, messages ...message) error
	}
	locked = lockedmemory.LockedMemory[message, message]
)

// pool is how many connections a client may have to a server, but for its replays.
const pool = 10

// process is a worker.
type process struct {
	config    config
	parent    *child.Line
	rooms     []*room
	client    redis.UniversalClient   // or nil
	nodes     []redis.UniversalClient // of a quorum, where client is for the sessions
	pool      *pgxpool.Pool           // or nil
	mem       *memService             // or nil: one of the three is there
	leases    atomic.Int64
	hasty     atomic.Int64        // contexts end soon until then
	aim       atomic.Pointer[aim] // to come; nil: none
	watch     *leakcheck.Watch
	recorders recorders
	witness   *witness
	ending    atomic.Bool
	resting   atomic.Bool // hands end, and the process goes on
	working   sync.WaitGroup
	bye       chan struct{} // closed with ending

	mu   sync.Mutex
	line *line // for what has no line of its own
}

// room is one Locker, with what works over it.
type room struct {
	*process
	n          int
	generation int
	slow       atomic.Int64 // holders hold for long until then
	mu         sync.RWMutex
	tools
}

// tools are what a room has until its Locker is closed.
type tools struct {
	locker *distlock.Locker
	store  memory // the inner one
	memory *locked
	name   string // in histories
}

func (r *room) now() tools {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tools
}

// work is the process: it works until the parent stops it or it is told to shut down. Serve would
// take an error for none after the parent has stopped it.
func work(_ context.Context, parent *child.Line, c config) error {
	err := (&process{config: c, parent: parent, bye: make(chan struct{})}).work()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	return nil
}

func (p *process) work() error {
	p.recorders.dir = p.config.Histories
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	l, err := dialRegister(p.config.Register)
	if err != nil {
		return err
	}
	p.line = l
	if p.witness, err = newWitness(p.config.Broken, func(s *said) { p.tell(s) }); err != nil {
		return err
	}
	redis.SetLogger(p.witness)
	if err := p.open(); err != nil {
		return err
	}
	p.watch = leakcheck.NewWatch()
	if err := p.parent.Send("ready"); err != nil { // a SIGTERM would do nothing before
		return err
	}
	for _, r := range p.rooms {
		for g := range p.config.Goroutines {
			h, err := r.hand(g, fmt.Sprint(p.config.On, p.config.Run, r.n, g))
			if err != nil {
				return err
			}
			p.working.Go(h.work)
		}
	}
	orders := make(chan struct{})
	go func() {
		defer close(orders)
		for {
			var o order
			if p.parent.Receive(&o) != nil {
				return
			}
			go p.run(&o)
		}
	}()
	select {
	case <-terms: // with leases held, and others waiting
	case <-orders:
		p.end()
		p.working.Wait()
	}
	p.end()
	if err := p.close(); err != nil {
		return fmt.Errorf("Close: %w", err)
	}
	p.working.Wait()
	if err := p.recorders.err(); err != nil {
		return err
	}
	if p.config.Hammers {
		_ = p.client.Close()
		p.watch.Stop() // connections may outlive their client
		servers.Within(15*time.Second, func() bool { err = goleak.Find(); return err == nil })
		return err
	}
	return nil
}

func (p *process) end() {
	if p.ending.CompareAndSwap(false, true) {
		close(p.bye)
	}
}

func (p *process) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Second)
	defer cancel()
	for _, r := range p.rooms {
		err = errors.Join(err, r.now().locker.Close(ctx))
	}
	return err
}

func (p *process) open() error {
	c := &p.config
	switch c.On {
	case "mem":
		p.mem = newMemService()
	case "postgres":
		var err error
		if p.pool, err = openPostgres(c.Postgres, c.dialer()); err != nil {
			return err
		}
	default:
		p.client = c.openRedis(c.Addrs)
		for _, node := range c.Nodes {
			p.nodes = append(p.nodes, c.openRedis([]string{node}))
		}
	}
	for n := range c.Lockers {
		r := &room{process: p, n: n}
		if err := r.furnish(); err != nil {
			return err
		}
		p.rooms = append(p.rooms, r)
	}
	return nil
}

// openRedis makes an application's client.
func (c *config) openRedis(addrs []string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, MasterName: c.MasterName, ContextTimeoutEnabled: c.Punctual, Dialer: c.dialer(),
		PoolSize: pool, PoolTimeout: time.Second,
	})
}

// dialer connects to the proxies instead of the servers; nil: no proxies.
func (c *config) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if len(c.Via) == 0 {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if via := c.Via[addr]; via != "" {
			addr = via
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// options are those of all Lockers.
func (p *process) options() *distlock.Options {
	return &distlock.Options{Namespace: p.config.Namespace, TTL: p.config.TTL, Logger: p.witness.logger, Observer: p.witness}
}

// openStore opens the store of the sessions in Redis or PostgreSQL. The parent adds entries of another
// program to some sessions. The store writes their places to skipped.
func openStore(client redis.UniversalClient, pool *pgxpool.Pool, c *config, skipped io.Writer) (memory, error) {
	opts := sessionstore.Options{SkipBroken: true, Logger: slog.New(slog.NewTextHandler(skipped, nil))}
	if pool != nil {
		return pgstore.New(pool, lockedmemory.SessionKey, codec{}, &pgstore.Options{Store: opts})
	}
	switch c.Broken {
	case noFence, noLock:
		return &document{client: client}, nil
	case noOrder:
		return newCounted(client), nil
	}
	store, err := redisstore.New(client, lockedmemory.SessionKey, codec{}, nil, &opts)
	if slices.Contains(brokenEdits, c.Broken) {
		return &edited{store, c.Broken}, err
	}
	return store, err
}

// furnish gives a room its Locker and memory.
func (r *room) furnish() error {
	c := &r.config
	t, err := r.broken()
	if err != nil {
		return err
	}
	switch {
	case t.locker != nil:
	case r.mem != nil:
		t.locker, err = r.mem.locker(r.n, r.options())
	case r.pool != nil:
		// The server may be down just now. New connects, as that of Redis does not.
		servers.Within(10*time.Second, func() bool {
			t.locker, err = pglock.New(context.Background(), r.pool, &pglock.Options{Options: *r.options()})
			return !errors.Is(err, distlock.ErrUnavailable)
		})
	case r.nodes != nil:
		// A node does not count before the largest TTL is over.
		t.locker, err = redlock.New(r.nodes, &redlock.Options{Options: *r.options(), RestartDelay: c.TTL})
	default:
		t.locker, err = redislock.New(r.client, r.options())
	}
	if err != nil {
		return err
	}
	switch {
	case t.store != nil:
	case r.mem != nil:
		t.store, err = r.mem.store()
	default:
		t.store, err = openStore(r.client, r.pool, c, io.Discard)
	}
	if err != nil {
		return err
	}
	if t.memory, err = lockedmemory.New(t.store, t.locker, lockedmemory.SessionKey, nil); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.name = processName(c.Run, r.n, r.generation)
	r.generation++
	r.tools = t
	return nil
}

// tell says something that has no goroutine of its own.
func (p *process) tell(s *said) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Run = p.config.Run
	a, _ := p.line.tell(s) // if it fails, the parent has gone
	return a
}

// hand is a goroutine that works.
type hand struct {
	*room
	n      int
	line   *line
	rng    *rand.Rand
	counts counts
	failed int   // acquisitions in a row
	again  named // the last exchange of a draft under a turn ID
}

// hand is a new one, which draws from a stream of its own.
func (r *room) hand(n int, purpose string) (*hand, error) {
	l, err := dialRegister(r.config.Register)
	return &hand{room: r, n: n, line: l, rng: stream(r.config.Seed, purpose), counts: make(counts)}, err
}

// tell says something; the counts go along.
func (h *hand) tell(s *said) answer {
	s.Run = h.config.Run
	s.Counts, h.counts = h.counts, make(counts)
	a, err := h.line.tell(s)
	if err != nil {
		h.end() // the parent has gone
	}
	return a
}

// work does what hands do until the process ends. Half of them are for locks, the others for sessions.
func (h *hand) work() {
	for !h.over() {
		switch {
		case h.config.Hammers:
			h.hammer()
		case h.n%2 == 0:
			h.leaseWork()
		default:
			h.sessionWork()
		}
		if h.failed > 0 { // as who has been turned away does
			h.rest(time.Duration(h.rng.Int64N(int64(min(h.failed, 8)*min(h.failed, 8)) * int64(2*time.Millisecond))))
		}
	}
	h.tell(&said{What: sayAlive})
}

// over reports whether nothing is to be begun any more.
func (h *hand) over() bool { return h.ending.Load() || h.resting.Load() }

func (h *hand) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.bye:
	}
}

// epoch is that of now.
func (h *hand) epoch() int { return epoch(now(), h.config.Start, h.config.Rotate) }

// limited is the context of one attempt: it lasts for long, or, now and then, for a few milliseconds.
func (h *hand) limited() (context.Context, context.CancelFunc) {
	limit := 6 * time.Second
	switch {
	case now() < h.hasty.Load():
		limit = between(h.rng, 0, 5*time.Millisecond)
	case h.rng.IntN(12) == 0:
		limit = between(h.rng, 0, 30*time.Millisecond)
	}
	return context.WithTimeout(context.Background(), limit)
}

// stopped reports whether the process was stopped for longer than its lease lasts since a time.
func (p *process) stopped(since int64) bool {
	return slices.ContainsFunc(spansOf(p.watch, since, now()), func(s span) bool { return s.Until-s.From > int64(p.config.TTL) })
}
