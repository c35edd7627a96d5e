package campaign

import (
	"time"

	"github.com/belugalock/belugalock/internal/test/faultnet"
)

var networkFaults = []*fault{
	{name: "cut off", on: everywhere, of: ofWorker, short: 800 * ms, long: 2500 * ms, strike: cutOff},
	{name: "slow network", on: everywhere, of: ofWorker, short: 500 * ms, long: 2000 * ms, strike: slowDown},
	{name: "replies lost", on: everywhere, of: ofWorker, short: 300 * ms, long: 1200 * ms, strike: dropReplies},
	{name: "late packet of a Save", on: everywhere, of: ofWorker, turns: true, short: 500 * ms, long: 7000 * ms, strike: holdSaves},
}

func cutOff(c *campaign, h *hit) {
	s := c.proxied(h)
	w := s.now()
	if w == nil {
		c.misses(h, "there is no worker")
		return
	}
	h.aims(c, w)
	w.tell(order{Do: doSlow, For: h.lasts})
	time.Sleep(100 * time.Millisecond) // until they hold
	s.network.Cut()
	h.restore = s.network.Heal
	c.await(h, w.run, c.register.holds(w.run), 0)
}

func slowDown(c *campaign, h *hit) {
	s := c.proxied(h)
	s.network.Latency(between(h.rng, 2*time.Millisecond, 60*time.Millisecond))
	h.restore = func() { s.network.Latency(0) }
	if s.now() == nil {
		c.misses(h, "there is no worker")
	}
}

// dropReplies loses the answer to one request of some.
func dropReplies(c *campaign, h *hit) {
	n, every := 0, 5+h.rng.IntN(60)
	dropped := c.proxied(h).network.DropReplies(func([]byte) bool {
		n++
		return n%every == 0
	})
	h.restore = func() {
		dropped.Stop()
		if dropped.Count() == 0 {
			c.misses(h, "no reply was lost")
		}
	}
}

// holdSaves lets the requests of a few Saves arrive late. Their callers may have left, and other workers
// may have cleared the session.
func holdSaves(c *campaign, h *hit) {
	saves := faultnet.Containing(`"w":`) // of a message
	held := c.proxied(h).network.HoldRequests(faultnet.First(1+h.rng.IntN(3), saves))
	h.restore = func() {
		held.Release()
		if held.Count() == 0 {
			c.misses(h, "no Save was sent")
		}
	}
}
