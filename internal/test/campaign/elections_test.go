package campaign

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/election"
)

// leaderOf is the name for which the workers of an epoch campaign.
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

// resignation waits for the leader after one that still had the lease. It needs r.mu.
func (r *register) resignation(p *place, v *visit, s *said) {
	if s.Trusted != 0 && strings.HasSuffix(v.key, "/leader") {
		p.waits = append(p.waits, &wait{h: &hit{fault: resigned}, key: v.key, since: now(), not: v.id.run, bar: time.Second})
	}
}
