package campaign

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	hammeredKeys = 4
	// patience is how long one goroutine of each worker waits for a lock, which has to be enough.
	patience = 30 * time.Second
)

// TestHammer is a run without faults: many workers compete for a few locks, with cancellations at any
// moment. The short run has 3 workers of 8 goroutines; -minutes has 8 of 64.
func TestHammer(t *testing.T) {
	p := planFor("node", drawn(), 5*time.Second)
	p.hammers, p.faults, p.ttl, p.rotate = true, []string{}, 3*time.Second, 24*time.Hour
	p.workers, p.proxied, p.goroutines = 3, 0, 8
	if *minutes > 0 {
		p.lasts, p.workers, p.goroutines = time.Duration(*minutes*float64(time.Minute)), 8, 64
	}
	c := newCampaign(t, p)
	c.run()
	c.tell()
	t.Logf("the patient waited for %s at most", time.Duration(c.register.waited).Round(time.Millisecond))
	if c.register.sections == 0 || c.register.counts["cancelled"] == 0 || c.register.waited == 0 {
		t.Error("this tests nothing")
	}
	c.nothingLeft()
}

// hammer acquires one of the few locks in some way. The first goroutine of a worker is patient, the
// others leave at some moment.
func (h *hand) hammer() {
	key := hotKey(0, h.rng.IntN(hammeredKeys))
	l, began := h.locker, now()
	limit := between(h.rng, 0, 50*time.Millisecond)
	if h.n == 0 {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	switch n := h.rng.IntN(5); {
	case h.n == 0:
		lease, err := l.Acquire(ctx, key, distlock.WithWait(-1))
		h.tell(&said{What: sayAlive, Waited: now() - began})
		if err != nil && !errors.Is(err, distlock.ErrUnavailable) {
			h.tell(&said{What: sayWrong, Text: fmt.Sprintf("a waiter for %s: %v", time.Duration(now()-began), err)})
		}
		h.under(ctx, lease, err, began, false)
	case n < 2:
		lease, err := l.Acquire(ctx, key, distlock.WithWait(-1))
		h.under(ctx, lease, err, began, false)
	case n == 2:
		lease, err := l.TryAcquire(ctx, key)
		h.under(ctx, lease, err, began, false)
	case n == 3:
		h.tokenless(ctx, l, key)
	default:
		worked := false
		err := l.Do(ctx, key, func(ctx context.Context) error {
			lease, ok := l.FromContext(ctx, key)
			if worked = ok; ok {
				h.section(lease, began, false, h.think)
			}
			return nil
		})
		h.ended(err, worked)
	}
}

// tokenless works under a lease without a look at its token. Whether the lease was lost is known when it
// is released.
func (h *hand) tokenless(ctx context.Context, l *distlock.Locker, key string) {
	lease, err := l.TryAcquire(ctx, key)
	if err != nil {
		h.ended(err, false)
		return
	}
	id := h.leases.Add(1)
	alone := !h.tell(&said{What: sayEnter, Key: key, Lease: id}).Refused
	if alone {
		h.rest(between(h.rng, 0, 2*time.Millisecond))
		alone = !h.tell(&said{What: sayLeave, Key: key, Lease: id}).Refused
	}
	err = lease.Release(context.WithoutCancel(ctx))
	if !alone && err == nil {
		h.tell(&said{What: sayTrusted, Key: key, Trusted: now()})
	}
	h.ended(err, true)
}

// nothingLeft checks that the server keeps only records of free locks and tombstones, all with a TTL.
// Other keys of a worker that has ended expire within the TTL of its locks.
func (c *campaign) nothingLeft() {
	var left []string
	if !servers.Within(c.plan.ttl+time.Second, func() bool { left = c.leftovers(); return len(left) == 0 }) {
		c.t.Errorf("there are left: %s", strings.Join(left, ", "))
	}
}

func (c *campaign) leftovers() (left []string) {
	server, records := c.service.Nodes()[0], 0
	keys, err := server.Do("KEYS", "*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, key := range strings.Fields(keys) {
		expires, err := server.Do("PTTL", key)
		if err != nil {
			c.t.Fatal(err)
		}
		if expires == "-2" { // it has just expired
			continue
		}
		_, kind, _ := strings.Cut(key, "}:")
		free := false
		if kind == "lock" {
			records++
			state, err := server.Do("GETRANGE", key, "2", "2")
			left, _ := strconv.Atoi(expires)
			free = err == nil && (state == "r" || state == "R" || time.Duration(left)*time.Millisecond <= driver.FenceKeep)
		}
		if !free && kind != "tombstones" || expires == "-1" {
			left = append(left, fmt.Sprintf("%s, for %s ms", key, expires))
		}
	}
	if records != hammeredKeys {
		c.t.Fatalf("%d locks have a record, want %d: is this the server?", records, hammeredKeys)
	}
	return left
}
