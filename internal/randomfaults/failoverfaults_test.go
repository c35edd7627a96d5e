package randomfaults

import (
	"slices"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

var replicatedOn = []string{"sentinel", "cluster"}

var failoverFaults = []*fault{
	{
		name: "fail-over that loses the last writes", on: replicatedOn, breaks: true, of: ofServer,
		short: 100 * time.Millisecond, long: 600 * time.Millisecond, heals: 7 * time.Second, strike: loseMaster,
	},
	{name: "fail-over that loses nothing", on: replicatedOn, of: ofServer, heals: 7 * time.Second, strike: replaceMaster},
}

// loseMaster cuts a master off from its replicas for a while, in which it goes on acknowledging, and kills it.
func loseMaster(c *campaign, h *hit) {
	c.failOver(true)
	defer c.failOver(false)
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	c.windows.spare(h.window, spares)
	detached := now() - int64(replicationLag)
	master.Detach()
	time.Sleep(h.lasts)
	over := c.forgets(h)
	master.Kill()
	c.windows.forget(h.window, detached, now())
	c.await(h, 0, slices.DeleteFunc(c.hot(), spares), 0)
	next := c.service.successor(master, key)
	over() // what follows does not concern the locks
	c.service.comeBack(master, next)
}

// replicationLag is how much of what a master has acknowledged its replicas may lack.
const replicationLag = 250 * time.Millisecond

// keyOf is a key that a master of a Cluster has.
func (c *campaign) keyOf(master *testservers.Redis) string {
	if c.service.cluster == nil {
		return ""
	}
	return c.service.keyOn(master)
}

// replaceMaster has a master acknowledge no more writes until its replicas have them all, and kills it then.
func replaceMaster(c *campaign, h *hit) {
	c.failOver(true)
	defer c.failOver(false)
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	replicas := c.service.replicas(master)
	must(c, master, "CLIENT", "PAUSE", "2500", "WRITE")
	if !c.service.caughtUp(master, replicas) {
		_, _ = master.Do("CLIENT", "UNPAUSE")
		c.misses(h, "its replicas did not catch up, it lives")
		return
	}
	master.Kill()
	c.await(h, 0, slices.DeleteFunc(c.hot(), spares), 0)
	c.service.comeBack(master, c.service.successor(master, key))
}
