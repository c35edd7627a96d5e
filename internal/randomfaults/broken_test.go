package randomfaults

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
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
)

// broken are the tools of a worker that does something wrong.
func (r *room) broken() (t tools, err error) {
	opts := r.options()
	switch r.config.Broken {
	case noLock:
		t.locker, err = memlock.New(opts)
	case blindTrust:
		opts.RenewEvery = -1
		t.locker, err = redislock.New(r.client, opts)
	case longTTL:
		opts.TTL *= 4
		t.locker, err = redislock.New(r.client, opts)
	case noFence:
		t.store = &document{r.client}
	}
	return t, err
}

// document keeps a session as one value, which a Save reads and writes.
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

func (d *document) Save(ctx context.Context, input, output message) error {
	history, err := d.Load(ctx, "")
	if err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	text, err := json.Marshal(append(history, input, output))
	if err != nil {
		return err
	}
	return d.client.Set(ctx, keyOf(ctx), text, 0).Err()
}

func (d *document) Clear(ctx context.Context) error { return d.client.Del(ctx, keyOf(ctx)).Err() }

func (*document) Search(context.Context, string, int) ([]message, error) {
	return nil, errors.ErrUnsupported
}
