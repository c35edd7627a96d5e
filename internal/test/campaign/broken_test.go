package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// What a worker can do wrong. Each of them has findings, or this package tests nothing.
const (
	noLock      = "no lock"       // a lock within the process
	blindTrust  = "blind trust"   // no renewal, and a holder that trusts its lease for ever
	lateNotice  = "late notice"   // a context that is cancelled a TTL too late
	falling     = "falling token" // tokens that do not rise
	noFence     = "no fence"      // a store that takes what comes
	lostSave    = "lost Save"     // a Save that is acknowledged and not made
	doubledSave = "doubled Save"  // one that is made twice
	noClear     = "no Clear"      // a Clear that is acknowledged and not made
	longTTL     = "long TTL"      // a lock that stays for longer than its TTL
	noTurn      = "no turn"       // a lock around each Load and Save alone
	stepwise    = "stepwise"      // a Replace that is a Clear and Appends
	idleStop    = "idle Stop"     // a Stop that does nothing
	lostPut     = "lost Put"      // a Put that is acknowledged and not made
	firstKnown  = "first known"   // an exchange of several questions that is stored under the first alone
)

func (p *process) broken() (t tools, err error) {
	switch ttl := p.config.TTL; p.config.Broken {
	case noLock:
		t.store = &document{client: p.client}
		t.locker, err = memlock.New(options(namespace, ttl, 0))
	case blindTrust:
		t.locker, err = redislock.New(p.client, options(namespace, ttl, -1))
	case longTTL:
		t.locker, err = redislock.New(p.client, options(namespace, 8*ttl, 0))
	case noFence:
		t.store = &document{client: p.client}
	}
	return t, err
}

// document keeps a session as one value, which a Save reads and writes, twice.
type document struct {
	client                                redis.UniversalClient
	*sessionstore.Store[message, message] // its other methods are not called
}

func (*document) AcceptsLocker(*distlock.Locker) error { return nil }

func (*document) Check(...message) error { return nil }

func keyOf(ctx context.Context) string {
	session, _ := lockedmemory.SessionKey(ctx)
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
	time.Sleep(time.Millisecond)
	text, err := json.Marshal(append(history, m))
	if err != nil {
		return err
	}
	return d.client.Set(ctx, keyOf(ctx), text, 0).Err()
}

func (d *document) Save(ctx context.Context, input, output message) error {
	return errors.Join(d.add(ctx, input), d.add(ctx, output))
}

func (d *document) SaveOnce(ctx context.Context, _ string, messages ...message) error {
	return d.Save(ctx, messages[0], messages[1])
}

func (d *document) Clear(ctx context.Context) error { return d.client.Del(ctx, keyOf(ctx)).Err() }

func (*document) Search(context.Context, string, int) ([]message, error) {
	return nil, errors.ErrUnsupported
}

type edited struct {
	*sessionstore.Store[message, message]
}

func (s *edited) Replace(ctx context.Context, from, to lockedmemory.Place, with ...lockedmemory.Exchange[message]) error {
	all, err := collect(s.Forward(ctx, lockedmemory.Place{}), 0)
	if err == nil {
		err = s.Clear(ctx)
	}
	for _, e := range all {
		if e.Place == from {
			for _, e := range with {
				err = errors.Join(err, s.Append(ctx, e.Messages...))
			}
		}
		if e.Place.Compare(from) < 0 || e.Place.Compare(to) > 0 {
			err = errors.Join(err, s.Append(ctx, e.Messages...))
		}
	}
	return err
}

type firstOnly struct {
	*sessionstore.Store[message, message]
}

func (s *firstOnly) AppendAll(ctx context.Context, ids, superseded []string, messages ...message) error {
	return s.Store.AppendAll(ctx, ids[:1], superseded, messages...)
}

// apart is a turn without a lock around all of it.
func (t *task) apart(ctx context.Context, a *attempt) error {
	a.Asked = now()
	history, err := t.outer.Load(ctx, "")
	if err != nil {
		return err
	}
	a.Loaded, a.Seen = now(), len(history)
	t.rest(between(t.rng, 0, 10*time.Millisecond))
	return t.write(ctx, a)
}
