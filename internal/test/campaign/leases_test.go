package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/election"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// own is a part of the keys that no other goroutine wants.
const own = "/own-"

func (h *hand) leaseWork() {
	key := hotKey(h.epoch(), h.rng.IntN(hotKeys))
	if h.n == 0 || h.rng.IntN(2) == 0 {
		key = fmt.Sprintf("e%d%s%d-%d", h.epoch(), own, h.config.Run, h.n)
	}
	ctx, cancel := h.limited()
	defer cancel()
	h.take(ctx, key)
}

func (h *hand) take(ctx context.Context, key string) {
	l, began := h.locker, now()
	switch h.rng.IntN(6) {
	case 0:
		lease, err := l.TryAcquire(ctx, key)
		h.under(ctx, lease, err, began)
	case 1, 2:
		worked := false
		err := l.Do(ctx, key, func(ctx context.Context) error {
			if lease, ok := l.FromContext(ctx, key); ok {
				worked = true
				h.section(lease, began, h.think)
			}
			return nil
		}, distlock.WithWait(-1))
		h.ended(err, worked)
	default:
		lease, err := l.Acquire(ctx, key, distlock.WithWait(-1))
		h.under(ctx, lease, err, began)
	}
}

// under works under a lease, and releases it, half of the time under a context that may have ended.
func (h *hand) under(ctx context.Context, lease *distlock.Lease, err error, began int64) {
	if err != nil {
		h.ended(err, false)
		return
	}
	met := h.section(lease, began, h.think) == overtaken
	if h.rng.IntN(50) == 0 {
		ttl := h.config.TTL
		if h.rng.IntN(2) == 0 {
			ttl = ttl * 2 / 3
		}
		if err := lease.Extend(ctx, ttl); err == nil {
			h.counts["extended"]++
			h.think(lease)
		} else {
			h.ended(err, true)
		}
	}
	if h.rng.IntN(2) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	err = lease.Release(ctx)
	if met && err == nil { // it has ended the lease of another one, or none
		h.tell(&said{What: sayTrusted, Key: lease.Key(), Fence: lease.Fence(), Trusted: now()})
	}
	h.ended(err, true)
}

// think is the work under a lease: mostly nothing, or up to 2 ms; at times long enough for a renewal.
func (h *hand) think(lease *distlock.Lease) {
	var d time.Duration
	switch n := h.rng.IntN(4000); {
	case now() < h.slow.Load():
		d = between(h.rng, h.config.TTL/2, 3*h.config.TTL/2)
	case n == 0:
		d = between(h.rng, 0, h.config.TTL)
	case n < 800:
		d = between(h.rng, 0, 2*time.Millisecond)
	default:
		return
	}
	if h.config.Broken == blindTrust && h.rng.IntN(4) == 0 {
		d = 3 * h.config.TTL / 2
	}
	done := lease.Context().Done()
	if h.config.Broken == blindTrust || h.config.Broken == lateNotice {
		done = nil
	}
	select {
	case <-time.After(d):
	case <-done:
		// Half of the work takes some time to end when it is told, and may meet the next holder.
		time.Sleep(max(0, between(h.rng, -100*time.Millisecond, 100*time.Millisecond)))
	}
}

type passage int

const (
	turnedAway passage = iota // by the register, or the lease was over before
	alone
	overtaken // another worker came in during it
)

// section is a critical section, from one access to the register to the other.
func (h *hand) section(lease *distlock.Lease, began int64, inside func(*distlock.Lease)) passage {
	s := &said{What: sayEnter, Key: lease.Key(), Lease: h.leases.Add(1), Fence: lease.Fence(), Began: began, Got: now()}
	if h.config.Broken == falling {
		s.Fence -= h.rng.Int64N(1e6)
	}
	if !h.trusts(lease) {
		h.counts["lost"]++ // it was over when it was there: after a pause
		return turnedAway
	}
	var ended atomic.Int64
	told := make(chan struct{})
	stop := context.AfterFunc(lease.Context(), func() {
		defer close(told)
		ended.Store(now())
	})
	if h.tell(s).Refused {
		stop()
		h.turnedAway(lease)
		return turnedAway
	}
	inside(lease)
	if h.stopped(s.Got) {
		h.act(lease) // it goes on after a stop, without another check
	}
	leave := &said{What: sayLeave, Key: s.Key, Lease: s.Lease}
	if at := now(); h.trusts(lease) {
		leave.Trusted = at
	} else if !stop() { // the context was cancelled, and its time is noted, or about to be
		<-told
		leave.Ended = ended.Load()
	} else {
		// Only the clock has said so far that the lease has ended.
		for range 20 { // a process that is stopped misses one of these, and not all
			select {
			case <-lease.Context().Done():
				leave.Ended = now()
			case <-time.After(50 * time.Millisecond):
				continue
			}
			break
		}
	}
	if h.config.Broken == lateNotice && leave.Ended != 0 {
		leave.Ended += int64(h.config.TTL)
	}
	if leave.Trusted == 0 {
		h.counts["lost"]++
		leave.Naps = spansOf(h.watch, s.Got, now())
		leave.Closed = errors.Is(context.Cause(lease.Context()), distlock.ErrNotHeld)
	}
	defer stop()
	if h.tell(leave).Refused {
		return overtaken
	}
	return alone
}

func (h *hand) act(lease *distlock.Lease) {
	if h.tell(&said{What: sayWrite, Key: lease.Key(), Fence: lease.Fence()}).Refused {
		h.turnedAway(lease)
	}
}

// turnedAway tells of a lease that is held after the register has refused its token.
func (h *hand) turnedAway(lease *distlock.Lease) {
	if at := now(); h.trusts(lease) {
		h.tell(&said{What: sayTrusted, Key: lease.Key(), Fence: lease.Fence(), Trusted: at})
	}
}

// trusts is whether the lease is held, by its own word.
func (h *hand) trusts(lease *distlock.Lease) bool {
	return lease.Err() == nil || h.config.Broken == blindTrust
}

// ended counts how something ended, and tells of what should not have happened.
func (h *hand) ended(err error, had bool) {
	if had {
		h.counts["acquired"]++
		h.failed = 0
	} else if err != nil {
		h.failed++
	}
	switch {
	case err == nil:
	case errors.Is(err, distlock.ErrClosed):
		h.counts["closed"]++
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		h.counts["cancelled"]++
	case errors.Is(err, distlock.ErrNotAcquired):
		h.counts["busy"]++
	case errors.Is(err, distlock.ErrLost), errors.Is(err, distlock.ErrNotHeld) && h.ctx.Err() != nil:
		h.counts["lost"]++
	// Faults put data of another program in the place of sessions, not of locks.
	case errors.Is(err, distlock.ErrRefused) && (!errors.Is(err, driver.ErrForeign) || strings.HasPrefix(err.Error(), "sessionstore: ")),
		errors.Is(err, distlock.ErrUnavailable), errors.Is(err, distlock.ErrOutcomeUnknown):
		h.counts["unavailable"]++
	case errors.Is(err, sessionstore.ErrGone): // deleted in the turn, or the server has lost it
		h.counts["gone"]++
	case errors.Is(err, sessionstore.ErrDeleted): // while the turn waited
		h.counts["deleted"]++
	case errors.Is(err, errPaused):
	default:
		h.tell(&said{What: sayWrong, Text: fmt.Sprintf("an error that should not be: %v", err)})
	}
}

const (
	hammeredKeys = 4
	// patience is how long one goroutine of each worker waits for a lock, which has to be enough.
	patience = 30 * time.Second
)

// TestHammer is a run without faults: many workers compete for a few locks, with cancellations at any
// moment. It has 3 workers of 8 goroutines; make faults FLAGS="-faults none" has 8 of 64.
func TestHammer(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, planFor("node", drawn(), 5*time.Second).withoutFaults())
	c.run()
	c.tell()
	if err := c.enough(); err != nil || c.counted("cancelled") == 0 || c.counted("patient") == 0 {
		t.Errorf("this tests nothing, or %v", err)
	}
}

func (p plan) withoutFaults() plan {
	p.hammers, p.works, p.faults, p.ttl, p.rotate = true, []string{"lock"}, []string{}, 3*time.Second, 24*time.Hour
	p.workers, p.proxied, p.goroutines = 3, 0, 8
	if *minutes > 0 {
		p.workers, p.goroutines = 8, 64
	}
	return p
}

// hammer works with one of the few locks. The first goroutine of a worker is patient, others leave.
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
	h.counts["patient"]++
	if err != nil && !errors.Is(err, distlock.ErrUnavailable) {
		h.tell(&said{What: sayWrong, Text: fmt.Sprintf("a waiter for %s: %v", time.Duration(now()-began), err)})
	}
	h.under(ctx, lease, err, began)
}

func leaderOf(epoch int) string { return fmt.Sprintf("e%d/leader", epoch) }

// electionWork campaigns, and leads for a time that ends by itself, with the lease, or with the
// campaign. Leaders are judged as holders are, and by each of their acts.
func (h *hand) electionWork() {
	key := leaderOf(h.epoch())
	// Pauses after failures begin anew with each campaign, so they end when the fault is felt no more.
	ctx, cancel := context.WithTimeout(context.Background(), between(h.rng, h.config.TTL/10, 2*h.config.TTL))
	defer cancel()
	led, began := false, now()
	err := election.Run(ctx, h.locker, key, func(ctx context.Context) error {
		lease, ok := h.locker.FromContext(ctx, key)
		if !ok {
			return fmt.Errorf("run %d leads without a lease", h.config.Run)
		}
		led = true
		h.counts["terms"]++
		h.section(lease, began, func(*distlock.Lease) {
			for until := now() + int64(between(h.rng, 0, h.config.TTL)); now() < until && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				h.act(lease)
			}
		})
		began = now()
		return nil
	})
	h.ended(err, led)
}

// resigned is no fault: the next leader is to come soon.
var resigned = &fault{name: "a leader resigns", of: ofWorker}
