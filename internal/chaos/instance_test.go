package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// config is what an instance is told when it starts.
type config struct {
	Addrs      []string
	MasterName string `json:",omitempty"`
	TTL        time.Duration
	Punctual   bool // its client keeps deadlines, so that calls are made in the caller's goroutine
	Broken     string
}

func (c *config) client() redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: c.Addrs, MasterName: c.MasterName, ContextTimeoutEnabled: c.Punctual})
}

type (
	memory = lockedmemory.Memory[message, message]
	locked = lockedmemory.LockedMemory[message, message]
	codec  = sessionstore.JSON[message]
)

type sessionKey struct{}

func withSession(ctx context.Context, session string) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

func sessionOf(ctx context.Context) (string, error) {
	session, _ := ctx.Value(sessionKey{}).(string)
	return session, nil
}

// instance is a process that answers messages.
type instance struct {
	ttl    time.Duration
	memory *locked
	store  memory // the inner one
	locker *distlock.Locker
	turns  bool // a turn is one

	mu  sync.Mutex
	out *json.Encoder
}

// serve does what each line of in says, side by side, until in ends, and reports to out.
func serve(text string, in io.Reader, out io.Writer) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	i := &instance{ttl: c.TTL, out: json.NewEncoder(out)}
	if err := i.open(&c, client); err != nil {
		return err
	}
	var working sync.WaitGroup
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var t task
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return err
		}
		working.Go(func() { i.tell(i.do(&t)) })
	}
	working.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := i.locker.Close(ctx); err != nil {
		return fmt.Errorf("Close: %w", err)
	}
	return lines.Err()
}

func (i *instance) open(c *config, client redis.UniversalClient) error {
	if c.Broken != "" {
		return i.openBroken(c, client)
	}
	store, err := redisstore.New(client, sessionOf, codec{}, nil)
	if err != nil {
		return err
	}
	l, err := redislock.New(client, c.locker())
	if err != nil {
		return err
	}
	return i.use(l, noting{store}, true)
}

func (c *config) locker() *distlock.Options {
	return &distlock.Options{Namespace: "chaos", TTL: c.TTL, Logger: slog.New(slog.DiscardHandler)}
}

func (i *instance) use(l *distlock.Locker, store memory, turns bool) (err error) {
	i.locker, i.store, i.turns = l, store, turns
	i.memory, err = lockedmemory.New(store, l, sessionOf, nil)
	return err
}

// noting is the store; its Clear notes under which token it ran.
type noting struct {
	*sessionstore.Store[message, message]
}

type noteKey struct{}

func (s noting) Clear(ctx context.Context) error {
	err := s.Store.Clear(ctx)
	if note, ok := ctx.Value(noteKey{}).(*int64); ok {
		if lease, ok := lockedmemory.Lease(ctx); ok {
			*note = lease.Fence()
		}
	}
	return err
}

func (i *instance) tell(r report) {
	r.Time = now()
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = i.out.Encode(r) // nobody reads: the other side has ended
}
