package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/election"
)

// leaderOf is the name for which the workers of an epoch campaign.
func leaderOf(epoch int) string { return fmt.Sprintf("e%d/leader", epoch) }

// electionWork campaigns, and leads for a time that ends by itself, with the lease, or with the
// campaign. Leaders are judged as holders are.
func (h *hand) electionWork() {
	key := leaderOf(h.epoch())
	// So short that the pauses after failures stay short: another one is soon in the queue.
	ctx, cancel := context.WithTimeout(context.Background(), between(h.rng, h.config.TTL/10, 2*h.config.TTL))
	defer cancel()
	led, began := false, now()
	err := election.Run(ctx, h.locker, key, func(ctx context.Context) error {
		lease, ok := h.locker.FromContext(ctx, key)
		if !ok {
			return fmt.Errorf("%s leads without a lease", h.name())
		}
		led = true
		h.counts["terms"]++
		h.section(lease, began, false, func(*distlock.Lease) {
			select {
			case <-time.After(between(h.rng, 0, h.config.TTL)): // resigns
			case <-ctx.Done():
			}
		})
		began = now()
		return nil
	})
	h.ended(err, led)
}
