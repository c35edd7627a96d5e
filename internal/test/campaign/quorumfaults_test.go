package campaign

import (
	"strconv"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	nodesKilled    = "minority of nodes killed" // that of -faults chaos on a quorum
	nodesRestarted = "all nodes restarted empty"
)

// No fault of a minority hinders a quorum. Nodes that are back empty break no lock, as long as they do
// not count.
var quorumFaults = []*fault{
	{name: nodesKilled, on: servers.Quorums, of: ofServer, barred: true, short: 200 * ms, long: 1500 * ms, heals: 3000 * ms, strike: killNodes},
	{name: "minority of nodes stopped", on: servers.Quorums, of: ofServer, barred: true, short: 500 * ms, long: 2500 * ms, strike: stopNodes(minority)},
	{name: "majority of nodes stopped", on: servers.Quorums, of: ofServer, short: 200 * ms, long: 1500 * ms, strike: stopNodes(majority)},
	{name: nodesRestarted, on: servers.Quorums, of: ofServer, heals: 3000 * ms, strike: restartNodes},
	{name: "grants end on a node", on: servers.Quorums, breaks: true, of: ofServer, strike: endGrants},
}

func minority(c *campaign) int { return len(c.nodes()) - c.service.Quorum.Size() }
func majority(c *campaign) int { return c.service.Quorum.Size() }

// someNodes are n nodes, from the victim on.
func (c *campaign) someNodes(h *hit, n int) (some []*servers.Redis) {
	nodes := c.nodes()
	for i := range n {
		some = append(some, nodes[(h.victim+i)%len(nodes)])
	}
	return some
}

// killNodes kills a minority, which comes back empty. The next fault waits until they count again.
func killNodes(c *campaign, h *hit) {
	nodes := c.someNodes(h, 1+h.rng.IntN(minority(c)))
	for _, node := range nodes {
		node.Kill()
	}
	c.await(h, 0, c.hot(), c.plan.bar())
	h.restore = func() {
		for _, node := range nodes {
			node.Restart()
		}
		c.awaitOld(nodes)
	}
}

// awaitOld waits until nodes that were restarted count. A server counts its time in whole seconds.
func (c *campaign) awaitOld(nodes []*servers.Redis) {
	for _, node := range nodes {
		servers.Within(10*time.Second, func() bool {
			up, err := strconv.Atoi(node.Info("uptime_in_seconds"))
			return err == nil && time.Duration(up)*time.Second > c.plan.ttl
		})
	}
}

func stopNodes(how func(*campaign) int) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		nodes := c.someNodes(h, how(c))
		for _, node := range nodes {
			node.Pause()
		}
		if h.barred {
			c.await(h, 0, c.hot(), c.plan.bar())
		}
		h.restore = func() {
			for _, node := range nodes {
				node.Resume()
			}
		}
	}
}

// restartNodes kills all nodes, and starts them again at once or one after the other.
func restartNodes(c *campaign, h *hit) {
	nodes := c.someNodes(h, len(c.nodes()))
	pause := between(h.rng, 0, 300*time.Millisecond)
	// Tokens run ahead of the clock by so much. Nodes that are back earlier, and empty, grant lower ones.
	pause = max(pause, time.Duration(driver.FenceBlock)*time.Microsecond)
	if h.rng.IntN(2) == 0 {
		var restarting sync.WaitGroup
		for _, node := range nodes {
			restarting.Go(func() {
				node.Kill()
				time.Sleep(pause)
				node.Restart()
			})
		}
		restarting.Wait()
	} else {
		for _, node := range nodes {
			node.Restart()
			time.Sleep(pause)
		}
	}
	c.await(h, 0, c.hot(), 0)
	c.awaitOld(nodes)
}

// endGrants ends the grants of the locks that all want, on one node.
func endGrants(c *campaign, h *hit) {
	node, ended := c.someNodes(h, 1)[0], false
	// A record states for how many ms it outlives its grant.
	const expire = `local r = redis.call('GET', KEYS[1])
return r and redis.call('PEXPIRE', KEYS[1], tonumber(string.sub(r, 85, 95))) or 0`
	for _, key := range hotKeysOf(c.epoch()) {
		if reply, err := node.Do("EVAL", expire, "1", lockKey(key)); err == nil && reply == "1" {
			ended = true
		}
	}
	if !ended {
		c.misses(h, "there is no lock")
	}
}
