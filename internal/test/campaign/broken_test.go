package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
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
	anyName     = "any name"      // a lock by a name that none may have
	mangled     = "mangled"       // messages that come back otherwise than they were
	outspoken   = "outspoken"     // spans that show names
	noTurn      = "no turn"       // a lock around each Load and Save alone
	noOrder     = "no order"      // a store whose order is a counter of each process, under the lock
	noIdentity  = "no turn ID"    // messages are handed out again as new ones
	stepwise    = "stepwise"      // a Replace that is a Clear and Appends
	halfClear   = "half a Clear"  // a Clear that leaves an exchange
	mixedPages  = "mixed pages"   // a Load that takes pages of two revisions for one history
)

// broken are the tools of a worker that does something wrong.
func (r *room) broken() (t tools, err error) {
	opts := r.options()
	switch r.config.Broken {
	case noLock:
		t.store = &document{client: r.client}
		t.locker, err = memlock.New(opts)
	case blindTrust:
		opts.RenewEvery = -1
		t.locker, err = redislock.New(r.client, opts)
	case longTTL:
		opts.TTL *= 8
		t.locker, err = redislock.New(r.client, opts)
	case noFence:
		t.store = &document{client: r.client}
	case noOrder:
		t.store = newCounted(r.client)
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

// counted keeps a session in a sorted set. A new message has the next number of the process that adds it,
// as in a store that counts from 0 and was made for one process: the Redis message store of Beluga AI
// v2.13.2 is such a store. A perfect lock does not help it.
type counted struct {
	document
	next *atomic.Int64
}

func newCounted(client redis.UniversalClient) *counted {
	return &counted{document{client: client}, new(atomic.Int64)}
}

func (s *counted) Load(ctx context.Context, _ string) (history []message, err error) {
	members, err := s.client.ZRange(ctx, keyOf(ctx), 0, -1).Result()
	for _, text := range members {
		var m message
		err = errors.Join(err, json.Unmarshal([]byte(text), &m))
		history = append(history, m)
	}
	return history, err
}

func (s *counted) SaveOnce(ctx context.Context, _ string, messages ...message) error {
	return s.Save(ctx, messages[0], messages[1])
}

func (s *counted) Save(ctx context.Context, input, output message) (err error) {
	for _, m := range []message{input, output} {
		text, failed := json.Marshal(m)
		member := redis.Z{Score: float64(s.next.Add(1) - 1), Member: text}
		err = errors.Join(err, failed, s.client.ZAdd(ctx, keyOf(ctx), member).Err())
	}
	return err
}

// edited is a store that is broken in what changes a history.
type edited struct {
	*sessionstore.Store[message, message]
	broken string
}

// brokenEdits are the defects of an edited store.
var brokenEdits = []string{stepwise, halfClear, mixedPages}

func (s *edited) Replace(ctx context.Context, from, to lockedmemory.Place, with ...lockedmemory.Exchange[message]) error {
	if s.broken != stepwise {
		return s.Store.Replace(ctx, from, to, with...)
	}
	all, err := collect(s.Forward(ctx, lockedmemory.Place{}), 0)
	if err == nil {
		err = s.Store.Clear(ctx)
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

func (s *edited) Clear(ctx context.Context) error {
	all, err := collect(s.Forward(ctx, lockedmemory.Place{}), 0)
	if n := len(all); s.broken == halfClear && n > 1 && err == nil {
		return s.Store.Replace(ctx, all[0].Place, all[n-2].Place)
	}
	return errors.Join(err, s.Store.Clear(ctx))
}

func (s *edited) Load(ctx context.Context, query string) (messages []message, err error) {
	if s.broken != mixedPages {
		return s.Store.Load(ctx, query)
	}
	var after lockedmemory.Place
	for _, most := range []int{3, 0} {
		page, err := collect(s.Forward(ctx, after), most)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			messages, after = append(messages, e.Messages...), e.Place
		}
		time.Sleep(10 * time.Millisecond)
	}
	return messages, nil
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
