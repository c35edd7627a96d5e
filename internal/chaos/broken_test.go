package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// What a service can do wrong. Each of them has findings, or this package tests nothing.
const (
	noLock     = "no lock"    // a lock within the process, and a memory that reads, adds and writes
	noTurn     = "no turn"    // a lock around Save alone
	noOrder    = "no order"   // a store whose order is a counter of each process, under the lock
	noFence    = "no fence"   // a store that takes what comes, under the lock
	noIdentity = "no turn ID" // messages are handed out again as new ones
)

func (i *instance) openBroken(c *config, client redis.UniversalClient) error {
	l, err := redislock.New(client, c.locker())
	if err != nil {
		return err
	}
	switch c.Broken {
	case noLock:
		_ = l.Close(context.Background())
		if l, err = memlock.New(nil); err != nil {
			return err
		}
		return i.use(l, &document{client}, true)
	case noFence:
		return i.use(l, &document{client}, true)
	case noOrder:
		return i.use(l, newCounted(client), true)
	}
	store, err := redisstore.New(client, sessionOf, codec{}, nil)
	if err != nil {
		return err
	}
	if c.Broken == noIdentity {
		return i.use(l, anonymous{noting{store}}, true)
	}
	return i.use(l, noting{store}, false)
}

// document keeps a session as one value, which a Save reads and writes, twice.
type document struct{ client redis.UniversalClient }

func keyOf(ctx context.Context) string {
	session, _ := sessionOf(ctx)
	return "plain:{" + session + "}"
}

func (d *document) Load(ctx context.Context, _ string) (history []message, err error) {
	text, err := d.client.Get(ctx, keyOf(ctx)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &history)
	}
	return history, err
}

func (d *document) add(ctx context.Context, m message) error {
	history, err := d.Load(ctx, "")
	if err != nil {
		return err
	}
	text, err := json.Marshal(append(history, m))
	if err != nil {
		return err
	}
	return d.client.Set(ctx, keyOf(ctx), text, 0).Err()
}

func (d *document) Save(ctx context.Context, input, output message) error {
	if err := d.add(ctx, input); err != nil {
		return err
	}
	return d.add(ctx, output)
}

func (d *document) Clear(ctx context.Context) error { return d.client.Del(ctx, keyOf(ctx)).Err() }
func (*document) Search(context.Context, string, int) ([]message, error) {
	return nil, errors.ErrUnsupported
}

// counted keeps a session in a sorted set. What is added has the next number of the process that adds it, as in a store that
// counts from 0 and was made for one process.
type counted struct {
	client redis.UniversalClient
	next   *atomic.Int64
}

func newCounted(client redis.UniversalClient) *counted { return &counted{client, new(atomic.Int64)} }

func (s *counted) Load(ctx context.Context, _ string) (history []message, err error) {
	members, err := s.client.ZRange(ctx, keyOf(ctx), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	for _, text := range members {
		var m message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, err
		}
		history = append(history, m)
	}
	return history, nil
}

func (s *counted) add(ctx context.Context, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.client.ZAdd(ctx, keyOf(ctx), redis.Z{Score: float64(s.next.Add(1) - 1), Member: text}).Err()
}

func (s *counted) Save(ctx context.Context, input, output message) error {
	if err := s.add(ctx, input); err != nil {
		return err
	}
	return s.add(ctx, output)
}

func (s *counted) Clear(ctx context.Context) error { return s.client.Del(ctx, keyOf(ctx)).Err() }
func (*counted) Search(context.Context, string, int) ([]message, error) {
	return nil, errors.ErrUnsupported
}

// anonymous makes a turn ID of its own for each Save.
type anonymous struct{ memory }

func (a anonymous) Save(ctx context.Context, input, output message) error {
	return a.memory.Save(lockedmemory.WithTurnID(ctx, fmt.Sprint(os.Getpid(), number.Add(1))), input, output)
}

var number atomic.Int64
