package campaign

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"runtime"
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
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

const namespace = "campaign"

func lockKey(key string) string { return namespace + ":" + redislock.HashTag(key) + "lock" }

type (
	memory interface {
		lockedmemory.Memory[message, message]
		SaveOnce(ctx context.Context, id string, messages ...message) error
		Append(ctx context.Context, messages ...message) error
		Replace(ctx context.Context, from, to lockedmemory.Place, with ...lockedmemory.Exchange[message]) error
		Delete(ctx context.Context) error
		Last(ctx context.Context, n int) ([]lockedmemory.Exchange[message], error)
		Forward(ctx context.Context, after lockedmemory.Place) iter.Seq2[lockedmemory.Exchange[message], error]
		Backward(ctx context.Context, before lockedmemory.Place) iter.Seq2[lockedmemory.Exchange[message], error]
	}
	locked = lockedmemory.LockedMemory[message, message]
)

// pool is how many connections a client may have to a server, but for its replays.
const pool = 10

type process struct {
	config config
	parent *child.Line
	client redis.UniversalClient   // or nil
	nodes  []redis.UniversalClient // of a quorum, where client is for the sessions
	pool   *pgxpool.Pool           // or nil
	tools
	leases  atomic.Int64
	hasty   atomic.Int64        // contexts end soon until then
	slow    atomic.Int64        // holders hold for long until then
	aim     atomic.Pointer[aim] // to come; nil: none
	watch   *leakcheck.Watch
	working sync.WaitGroup
	ctx     context.Context // ends with the work
	end     context.CancelFunc

	mu   sync.Mutex
	line *line // for what has no line of its own
}

type tools struct {
	locker *distlock.Locker
	store  memory // the inner one
	memory *locked
}

// work is the process: it works until the parent stops it or it is told to shut down. Serve would
// take an error for none after the parent has stopped it.
func work(_ context.Context, parent *child.Line, c config) error {
	p := &process{config: c, parent: parent}
	p.ctx, p.end = context.WithCancel(context.Background())
	if err := p.work(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	return nil
}

func (p *process) work() error {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	l, err := dialRegister(p.config.Register)
	if err != nil {
		return err
	}
	p.line = l
	redis.SetLogger(quiet{})
	if err := p.open(); err != nil {
		return err
	}
	p.watch = leakcheck.NewWatch()
	if err := p.parent.Send("ready"); err != nil { // a SIGTERM would do nothing before
		return err
	}
	for g := range p.config.Goroutines {
		h, err := p.hand(g, fmt.Sprint(p.config.On, p.config.Run, g))
		if err != nil {
			return err
		}
		p.working.Go(h.work)
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
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Second)
	defer cancel()
	if err := p.locker.Close(ctx); err != nil {
		return fmt.Errorf("Close: %w", err)
	}
	p.working.Wait()
	if p.config.Hammers {
		_ = p.client.Close()
		p.watch.Stop() // connections may outlive their client
		servers.Within(15*time.Second, func() bool { err = goleak.Find(); return err == nil })
		return err
	}
	return nil
}

func (p *process) open() error {
	c := &p.config
	if c.Postgres != "" {
		var err error
		if p.pool, err = openPostgres(c.Postgres, c.dialer()); err != nil {
			return err
		}
	} else {
		p.client = c.openRedis(c.Addrs)
		for _, node := range c.Nodes {
			p.nodes = append(p.nodes, c.openRedis([]string{node}))
		}
	}
	return p.furnish()
}

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

// options are those of a silent Locker, which renews as often as renew says.
func options(namespace string, ttl, renew time.Duration) *distlock.Options {
	return &distlock.Options{Namespace: namespace, TTL: ttl, RenewEvery: renew, Logger: slog.New(slog.DiscardHandler)}
}

func openStore(client redis.UniversalClient, pool *pgxpool.Pool, c *config) (memory, error) {
	if pool != nil {
		return pgstore.New(pool, lockedmemory.SessionKey, codec{}, nil)
	}
	if c.Broken == noFence || c.Broken == noLock {
		return &document{client: client}, nil
	}
	store, err := redisstore.New(client, lockedmemory.SessionKey, codec{}, nil, nil)
	if c.Broken == stepwise {
		return &edited{store}, err
	}
	return store, err
}

func (p *process) furnish() error {
	c := &p.config
	t, err := p.broken()
	if err != nil {
		return err
	}
	switch {
	case t.locker != nil:
	case p.pool != nil:
		// The server may be down just now. New connects, as that of Redis does not.
		servers.Within(10*time.Second, func() bool {
			t.locker, err = pglock.New(context.Background(), p.pool, &pglock.Options{Options: *options(namespace, c.TTL, 0)})
			return !errors.Is(err, distlock.ErrUnavailable)
		})
	case p.nodes != nil:
		// A node does not count before the largest TTL is over.
		t.locker, err = redlock.New(p.nodes, &redlock.Options{Options: *options(namespace, c.TTL, 0), RestartDelay: c.TTL})
	default:
		t.locker, err = redislock.New(p.client, options(namespace, c.TTL, 0))
	}
	if err != nil {
		return err
	}
	if t.store == nil {
		if t.store, err = openStore(p.client, p.pool, c); err != nil {
			return err
		}
	}
	if t.memory, err = lockedmemory.New(t.store, t.locker, lockedmemory.SessionKey, nil); err != nil {
		return err
	}
	p.tools = t
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

type hand struct {
	*process
	n      int
	line   *line
	rng    *rand.Rand
	counts counts
	failed int   // acquisitions in a row
	again  named // the last exchange of a draft under a turn ID
}

// hand is a new one, which draws from a stream of its own.
func (p *process) hand(n int, purpose string) (*hand, error) {
	l, err := dialRegister(p.config.Register)
	return &hand{process: p, n: n, line: l, rng: stream(p.config.Seed, purpose), counts: make(counts)}, err
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

func (h *hand) does(work string) bool { return slices.Contains(h.config.Works, work) }

// work does what hands do until the process ends. Half of them are for locks, the others for sessions.
func (h *hand) work() {
	for h.ctx.Err() == nil {
		switch {
		case h.config.Hammers:
			h.hammer()
		case h.does("election") && (h.n == 4 || len(h.config.Works) == 1):
			h.electionWork()
		case h.does("lock") && (h.n%2 == 0 || !h.does("session") && !h.does("draft")):
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

func (h *hand) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

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

func (p *process) run(o *order) {
	until := now() + int64(o.For)
	switch o.Do {
	case doStarve:
		p.starve(o.For)
	case doCancel:
		p.hasty.Store(until)
	case doSlow:
		p.slow.Store(until)
	case doReach:
		p.aim.Store(o.Aim)
	case doHold:
		p.stage(o)
	case doMeet:
		p.answer(o)
	}
}

// starve has busy loops take the process's only processor.
func (p *process) starve(d time.Duration) {
	before := runtime.GOMAXPROCS(1)
	var loops sync.WaitGroup
	for range 6 {
		loops.Go(func() {
			for until := now() + int64(d); now() < until; {
			}
		})
	}
	loops.Wait()
	runtime.GOMAXPROCS(before)
}

func (p *process) stage(o *order) {
	h, err := p.hand(0, o.Key)
	if err != nil {
		return
	}
	defer h.line.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil && p.ctx.Err() == nil {
		began := now()
		lease, err := h.locker.Acquire(ctx, o.Key, distlock.WithWait(-1))
		if err == nil {
			h.section(lease, began, func(*distlock.Lease) { h.rest(o.For) })
			h.ended(lease.Release(ctx), true)
			h.tell(&said{What: sayAlive})
			return
		}
		h.ended(err, false)
	}
}

// answer answers one message, or does something else with its session, within 5 s.
func (p *process) answer(o *order) {
	h, err := p.hand(0, o.Key)
	if err != nil {
		return
	}
	defer h.line.conn.Close()
	t := &task{hand: h, kind: aTurn, session: o.Key, turn: int(h.next()), named: true}
	if o.Kind != "" {
		t.kind = o.Kind
	}
	if o.Turn != 0 {
		t.turn = o.Turn
	}
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until) && h.ctx.Err() == nil; h.rest(20 * time.Millisecond) {
		a := t.do()
		h.tell(&said{What: sayAttempt, Attempt: a})
		if a.acknowledged() {
			return
		}
	}
}
