package campaign

import (
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

var replicatedOn = []string{"sentinel", "cluster"}

var failoverFaults = []*fault{
	{name: "failover that loses the last writes", on: replicatedOn, breaks: true, of: ofServer, short: 100 * ms, long: 600 * ms, heals: 7000 * ms, strike: loseMaster},
	{name: "master killed", on: replicatedOn, breaks: true, of: ofServer, heals: 7000 * ms, strike: loseMaster},
	{name: "failover that loses nothing", on: replicatedOn, of: ofServer, heals: 7000 * ms, strike: replaceMaster},
}

// loseMaster kills a master. A fault that lasts first cuts the master from its replicas.
func loseMaster(c *campaign, h *hit) {
	c.failOver(true)
	defer c.failOver(false)
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	c.windows.spare(h.window, spares)
	replicas := c.service.Replicas(master)
	detached := now() - int64(replicationLag)
	if h.lasts > 0 {
		master.Detach()
		time.Sleep(h.lasts)
	}
	over := c.forgets(h)
	master.Kill()
	c.windows.forget(h.window, detached, now())
	kept := c.kept(replicas)
	c.await(h, 0, slices.DeleteFunc(c.hot(), spares), 0)
	next := c.service.AwaitMaster(key, master)
	c.windows.kept(h.window, kept[next])
	over() // what follows does not concern the locks
	c.service.ComeBack(master, next)
}

// replicationLag is how much of what a master has acknowledged its replicas may lack.
const replicationLag = 250 * time.Millisecond

// keyOf is a key that a master of a Cluster has.
func (c *campaign) keyOf(master *servers.Redis) string {
	if c.service.Cluster == nil {
		return ""
	}
	for i := range 1000 {
		if key := fmt.Sprint("key-", i); c.service.Master(key) == master {
			return key
		}
	}
	c.t.Fatal("a master keeps no keys")
	return ""
}

// replaceMaster has a master acknowledge no more writes until its replicas have them all, and kills it then.
func replaceMaster(c *campaign, h *hit) {
	c.failOver(true)
	defer c.failOver(false)
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	must(c, master, "CLIENT", "PAUSE", "2500", "WRITE")
	if !c.caughtUp(master) {
		_, _ = master.Do("CLIENT", "UNPAUSE")
		c.misses(h, "its replicas did not catch up, it lives")
		return
	}
	master.Kill()
	c.await(h, 0, slices.DeleteFunc(c.hot(), spares), 0)
	c.service.ComeBack(master, c.service.AwaitMaster(key, master))
}

// caughtUp waits until the replicas of a master, which takes no writes, have all it has. It reports
// whether they have.
func (c *campaign) caughtUp(master *servers.Redis) bool {
	replicas := c.service.Replicas(master)
	return servers.Within(1500*time.Millisecond, func() bool {
		offset := master.Info("master_repl_offset")
		return offset != "" && !slices.ContainsFunc(replicas, func(r *servers.Redis) bool {
			return r.Info("slave_repl_offset") != offset
		})
	})
}
