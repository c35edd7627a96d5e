package campaign

import (
	"context"
	"encoding/gob"
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
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
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
	// interrupts are memories with the policy Interrupt, where the lock can ask.
	interrupts []*locked
	boxes      []*inbox.Inbox[message, message] // see inboxWork
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
	return pace.Renew(&distlock.Options{Namespace: namespace, TTL: ttl, Logger: slog.New(slog.DiscardHandler)}, renew)
}

func openStore(client redis.UniversalClient, pool *pgxpool.Pool, c *config) (memory, error) {
	if pool != nil {
		return pgstore.New(pool, lockedmemory.SessionKey, codec{}, nil)
	}
	if c.Broken == noFence || c.Broken == noLock {
		return &document{client: client}, nil
	}
	store, err := redisstore.New(client, lockedmemory.SessionKey, codec{}, nil, nil)
	switch c.Broken {
	case stepwise:
		return &edited{store}, err
	case firstKnown:
		return &firstOnly{store}, err
	}
	return store, err
}

func (p *process) furnish() error {
	c := &p.config
	mine := func() *distlock.Options {
		o := options(namespace, c.TTL, 0)
		o.Interruptible = slices.Contains(c.Works, "stop") || slices.Contains(c.Works, "inbox")
		return o
	}
	t, err := p.broken()
	if err != nil {
		return err
	}
	switch {
	case t.locker != nil:
	case p.pool != nil:
		// The server may be down just now. New connects, as that of Redis does not.
		servers.Within(10*time.Second, func() bool {
			t.locker, err = pglock.New(context.Background(), p.pool, &pglock.Options{Options: *mine()})
			return !errors.Is(err, distlock.ErrUnavailable)
		})
	case p.nodes != nil:
		// A node does not count before the largest TTL is over.
		t.locker, err = redlock.New(p.nodes, &redlock.Options{Options: *mine(), RestartDelay: c.TTL})
	default:
		t.locker, err = redislock.New(p.client, mine())
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
	for _, grace := range []time.Duration{0, c.TTL / 5} {
		if p.nodes == nil && slices.Contains(c.Works, "stop") {
			m, err := lockedmemory.New(t.store, t.locker, lockedmemory.SessionKey, &lockedmemory.Options{Busy: lockedmemory.Interrupt, Grace: grace})
			if err != nil {
				return err
			}
			t.interrupts = append(t.interrupts, m)
		}
	}
	for _, o := range boxes {
		box, err := inbox.New(t.memory, &o)
		if err != nil {
			return err
		}
		t.boxes = append(t.boxes, box)
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
		case h.does("stop") && h.nodes == nil && (h.n == 6 || len(h.config.Works) == 1):
			h.stopWork()
		case h.does("inbox") && h.nodes == nil && (h.n == 7 || len(h.config.Works) == 1):
			h.inboxWork()
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

type config struct {
	On         string
	Works      []string
	Addrs      []string
	MasterName string            `json:",omitempty"`
	Nodes      []string          `json:",omitempty"` // of a quorum; Addrs has the sessions
	Postgres   string            `json:",omitempty"` // the URL
	Via        map[string]string `json:",omitempty"` // proxies, by the servers' addresses
	Register   string            // path of its socket
	Run        int
	Seed       uint64
	TTL        time.Duration
	Start      int64         // of the campaign
	Rotate     time.Duration // keys and sessions are new after each
	Goroutines int
	Punctual   bool // its client keeps deadlines
	Hammers    bool
	Broken     string
}

// epoch counts the sets of keys and sessions.
func epoch(at, start int64, rotate time.Duration) int { return int((at - start) / int64(rotate)) }

// The keys of an epoch, without those that a goroutine has for itself.
const (
	hotKeys = 3
	talks   = 3 // sessions with turns
	notes   = 2 // sessions with Clears, and with Saves outside turns
)

// order is what the parent tells a worker while it runs, a line of JSON each.
type order struct {
	Do   string
	Key  string
	For  time.Duration
	Aim  *aim `json:",omitempty"` // of doReach; nil: none any more
	Turn int  // of doMeet: the turn, and what to do; 0: another one
	Kind kind
}

const (
	doStarve = "starve" // busy loops have its processor
	doCancel = "cancel" // contexts end within milliseconds
	doSlow   = "slow"   // holders hold for longer than their lease lasts
	doHold   = "hold"   // wait in the queue of a key, and hold it for a time
	doReach  = "reach"  // tell when a task comes to a moment
	doMeet   = "meet"   // take over what a struck worker was about, or clear its session
)

const (
	sayReached   = iota + 1 // a task has come to the moment of a strike; answered
	sayEnter                // a critical section begins; answered
	sayLeave                // it ends
	sayWrite                // an access that looks at nothing, by one that was stopped; answered
	sayTrusted              // a call was refused although the lease is held
	sayAttempt              // a turn, Save or Clear has ended
	sayWrong                // something happened that should not
	sayOperation            // an operation on a session of drafts begins, or has returned
	sayAlive                // nothing but counts
	sayCall                 // a call in a session of stops or of an inbox begins, or has returned
)

// said is what a worker says. The register answers each.
type said struct {
	What  int
	Run   int
	Key   string
	Lease int64 // counts the leases of a run
	Fence int64
	// Of a lease: when its acquisition began and returned.
	Began, Got int64
	// Trusted is a moment at which the lease was held, by its own word: the clock was read before
	// the lease was asked. Ended is when its context was cancelled; 0: it was not. Naps are when,
	// since Got, the process was not let run.
	Trusted, Ended int64
	Naps           []span
	Closed         bool // its Locker was closed, which gave it back
	Counts         counts
	Attempt        *attempt
	Op             *history.Op
	Call           *stopCall
	Text           string
}

type answer struct {
	Refused bool // a higher token has been here
}

// counts are of acquisitions, by how they ended, and of other things.
type counts map[string]int

type message struct {
	Turn  int               `json:"t"`
	Role  conversation.Role `json:"r"`
	Write string            `json:"w"`           // the writer
	Seen  int               `json:"n,omitempty"` // of an answer: how many messages stood before its question
	Fence int64             `json:"f,omitempty"` // the token of the lease it was written under, if it was a turn's
}

type codec struct {
	sessionstore.JSON[message]
}

func exchange(turn int, write string, fence int64, seen int) (question, answer message) {
	question = message{Turn: turn, Role: conversation.Question, Write: write, Fence: fence}
	answer = message{Turn: turn, Role: conversation.Answer, Write: write, Fence: fence, Seen: seen}
	return question, answer
}

type kind string

const (
	aTurn       kind = "turn"             // loads, thinks, saves
	aNote       kind = "turn that adds"   // loads, saves what does not depend on what it saw
	aTurnClear  kind = "turn that clears" //
	aSave       kind = "save"             // outside a turn
	aClear      kind = "clear"            // outside a turn
	aStrayWrite kind = "write past all checks"
)

type ending string

const (
	saved   ending = "saved"   // acknowledged by the Save or Clear
	found   ending = "found"   // acknowledged: it stood there when the history was loaded
	refused ending = "refused" // not written: the store has seen a higher token
	held    ending = "held"    // not written: the lease had ended, or there was none
	unknown ending = "unknown" // written or not
	wrong   ending = "wrong"   // what should not happen
)

// attempt is what a worker knows of one attempt. Times that are 0 were not reached.
type attempt struct {
	Run          int
	Session      string
	Kind         kind
	Turn         int
	Write        string // the writer of the acknowledged turn
	Fence        int64  // under which this worked; of found: under which the entry was written
	Mine         int64  // under which this worked
	Begun, Ended int64
	Asked        int64 // the Load was sent
	Loaded       int64 // and answered
	Seen         int   // messages
	Sent, Done   int64 // the first Save or Clear; of found, the Load that showed it
	End          ending
	Past         bool // it was written past all checks, see manner
	Error        string
}

func (a *attempt) acknowledged() bool { return a.End == saved || a.End == found }

// line is a connection to the register. It is used by one goroutine.
type line struct {
	conn net.Conn
	out  *gob.Encoder
	in   *gob.Decoder
}

func newLine(conn net.Conn) *line { return &line{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)} }

func dialRegister(path string) (*line, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return newLine(conn), nil
}

func (l *line) tell(s *said) (a answer, err error) {
	if err = l.out.Encode(s); err == nil {
		err = l.in.Decode(&a)
	}
	return a, err
}
