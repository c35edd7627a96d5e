package sweeps

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// most is more operations than any call makes.
const most = 300

// Every call of the drivers of a lock service and a session store fails in turn, in every way.
func TestSweep_drivers(t *testing.T) {
	for _, r := range slices.Concat(lockRows, storeRows) {
		t.Run(r.name, func(t *testing.T) {
			failed := 0
			for _, k := range kinds() {
				n := 0
				for ; n < most; n++ {
					p := &point{kind: k, n: n}
					synctest.Test(t, func(t *testing.T) { r.run(newScene(t, p)) })
					if t.Failed() {
						t.Fatalf("%s, operation %d", k.name, n)
					}
					if !p.wasReached() {
						break
					}
					failed++
				}
				if n == most {
					t.Errorf("%s: there is no end of operations", k.name)
				}
			}
			if (failed == 0) != r.silent {
				t.Errorf("%d operations failed", failed)
			}
		})
	}
}

// newScene is two instances of services in process; what the first asks of them goes through the
// point.
func newScene(t *testing.T, p *point) *scene {
	service := memlock.NewDriver()
	store, err := memstore.NewDriver(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{TB: t, point: p, key: secret, ctx: context.Background(), wait: wait, soon: ttl + time.Second,
		awaitQueued: synctest.Wait,
		settle:      func() { time.Sleep(2 * time.Second) }}
	if !p.kind.hangs {
		s.soon = 2 * time.Second
	}
	open := func(d driver.Driver, sessions func(storedriver.Driver) storedriver.Driver) (in instance) {
		var err error
		in.locker, err = distlock.New(d, &distlock.Options{TTL: ttl, Wait: wait, Logger: quiet()})
		s.must(err)
		key := lockedmemory.FixedKey(s.key)
		in.store, err = sessionstore.New(sessions(store), key, sessionstore.JSON[string]{}, nil)
		s.must(err)
		in.memory, err = lockedmemory.New(in.store, in.locker, key, nil)
		s.must(err)
		t.Cleanup(func() { s.must(in.locker.Close(context.Background())) })
		return in
	}
	s.faulty = open(&locks{service, p}, func(d storedriver.Driver) storedriver.Driver { return &sessions{d, p} })
	s.sound = open(service, func(d storedriver.Driver) storedriver.Driver { return d })
	return s
}
