package campaign

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

const (
	hammeredKeys = 4
	// patience is how long one goroutine of each worker waits for a lock, which has to be enough.
	patience = 30 * time.Second
)

// TestHammer is a run without faults: many workers compete for a few locks, with cancellations at any
// moment. It has 3 workers of 8 goroutines; make faults FLAGS="-faults none" has 8 of 64.
func TestHammer(t *testing.T) {
	c := newCampaign(t, planFor("node", drawn(), 5*time.Second).withoutFaults())
	c.run()
	c.tell()
	if err := c.enough(); err != nil || c.register.counts["cancelled"] == 0 || c.register.waited == 0 {
		t.Errorf("this tests nothing, or %v", err)
	}
}

// withoutFaults is the plan of a run in which many workers compete for a few locks.
func (p plan) withoutFaults() plan {
	p.hammers, p.works, p.faults, p.ttl, p.rotate = true, []string{"lock"}, []string{}, 3*time.Second, 24*time.Hour
	p.workers, p.proxied, p.goroutines = 3, 0, 8
	if *minutes > 0 {
		p.workers, p.goroutines = 8, 64
	}
	return p
}

// hammer works with one of the few locks. The first goroutine of a worker is patient, the others leave at
// some moment.
func (h *hand) hammer() {
	key, began := hotKey(0, h.rng.IntN(hammeredKeys)), now()
	limit := between(h.rng, 0, 50*time.Millisecond)
	if h.n == 0 {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if h.n > 0 {
		h.take(ctx, key)
		return
	}
	lease, err := h.locker.Acquire(ctx, key, distlock.WithWait(-1))
	h.tell(&said{What: sayAlive, Waited: now() - began})
	if err != nil && !errors.Is(err, distlock.ErrUnavailable) {
		h.tell(&said{What: sayWrong, Text: fmt.Sprintf("a waiter for %s: %v", time.Duration(now()-began), err)})
	}
	h.under(ctx, lease, err, began)
}
