package campaign

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

var serverFaults = []*fault{
	{name: "server restarted empty", on: redises, breaks: true, of: ofServer, strike: restartEmpty},
	{name: "clients paused", on: scripted, of: ofServer, short: 200 * ms, long: 1200 * ms, strike: pauseClients},
	{name: "server stopped for a moment", on: everywhere, of: ofServer, short: 200 * ms, long: 1200 * ms, strike: pauseServer},
	{name: "scripts flushed", on: scripted, of: ofServer, short: 300 * ms, long: 1000 * ms, strike: flushScripts},
	{name: "out of memory", on: scripted, of: ofServer, short: 200 * ms, long: 1500 * ms, strike: sets("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0")},
	{name: "busy script", on: scripted, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: busyScript},
	{name: "read-only", on: append(slices.Clone(servers.Quorums), "node"), of: ofServer, short: 200 * ms, long: 1000 * ms, strike: sets("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")},
	{name: "loading", on: []string{"node"}, of: ofServer, short: 200 * ms, long: 1000 * ms, heals: 1000 * ms, strike: reload},
	{name: "slot on the move", on: []string{"cluster"}, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: halfMoveSlot},
	{name: "no right to notify", on: scripted, of: ofServer, short: 500 * ms, long: 2000 * ms, strike: withRights("resetchannels -publish -subscribe", "allchannels +publish +subscribe")},
	{name: "no right to run scripts", on: scripted, of: ofServer, short: 200 * ms, long: 1200 * ms, strike: withRights("-eval -evalsha", "+eval +evalsha")},
	{name: "slot moved", on: []string{"cluster"}, of: ofServer, strike: moveSlot},
	{name: "subscribers disconnected", on: everywhere, of: ofServer, strike: hangUp("pubsub")},
	{name: "clients disconnected", on: everywhere, of: ofServer, strike: hangUp("normal")},
}

// masterFor is the server that the fault hits.
func (c *campaign) masterFor(h *hit) *servers.Redis {
	masters := c.service.Masters()
	if len(masters) == 0 {
		c.t.Fatal("there is no master")
	}
	return masters[h.victim%len(masters)]
}

// missed is for how long a server may be silent before the others take it for dead. Pauses of
// servers are shorter.
const missed = 3 * time.Second

// startServers starts the servers of a topology.
func (c *campaign) startServers() {
	switch {
	case c.plan.on == "postgres":
		c.startPostgres()
		return
	case c.plan.on == "node": // which is to load its data again
		c.service = servers.StartTopology(c.t, c.plan.on, append([]string{"--enable-debug-command", "local"}, c.plan.server...)...)
	default:
		c.service = servers.StartTopology(c.t, c.plan.on, c.plan.server...)
		c.service.Patient(missed)
	}
	if c.service.Quorum != nil {
		c.sessions = servers.StartRedis(c.t, c.plan.server...)
	}
	c.version = "Redis " + c.service.Nodes()[0].Info("redis_version")
}

// storeAddrs are for a client of the sessions in Redis.
func (c *campaign) storeAddrs() []string {
	if c.sessions != nil {
		return c.sessions.Addrs()
	}
	return c.service.Addrs()
}

// nodes are those of Redis.
func (c *campaign) nodes() []*servers.Redis {
	if c.service == nil {
		return nil
	}
	return c.service.Nodes()
}

// store is one of the parent.
func (c *campaign) store() (store memory, closing func(), err error) {
	worker := &config{Broken: c.plan.broken}
	if c.postgres != nil {
		pool, err := openPostgres(c.database.URL(), nil)
		if err != nil {
			return nil, nil, err
		}
		store, err := openStore(nil, pool, worker)
		return store, pool.Close, err
	}
	client := c.client()
	store, err = openStore(client, nil, worker)
	return store, func() { _ = client.Close() }, err
}

// client is one of the parent. It talks to masters alone: for a moment a Sentinel may still name
// one that has come back as a replica, and shows what it had long ago until it has its master's
// data.
func (c *campaign) client() redis.UniversalClient {
	options := &redis.UniversalOptions{Addrs: c.storeAddrs(), MasterName: c.service.MasterName()}
	if c.service.Sentinel != nil {
		options.OnConnect = func(ctx context.Context, conn *redis.Conn) error { // of Sentinels too
			role, err := conn.Do(ctx, "ROLE").Slice()
			if err == nil && role[0] == "slave" {
				err = errors.New("the server is a replica")
			}
			return err
		}
	}
	return redis.NewUniversalClient(options)
}

// restartEmpty kills a server and starts it again before its clients notice.
func restartEmpty(c *campaign, h *hit) {
	c.failOver(true)
	defer c.failOver(false)
	c.ledger.judgeSoFar()
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	keys := slices.DeleteFunc(c.hot(), spares)
	c.windows.spare(h.window, spares)
	over := c.forgets(h)
	master.Kill()
	killed := now()
	c.windows.forget(h.window, 0, killed)
	c.await(h, 0, keys, 0)
	// Tokens run ahead of the clock by so much. A server that is back earlier, and empty, grants
	// lower ones.
	time.Sleep(time.Duration(driver.FenceBlock) * time.Microsecond)
	master.Restart()
	if c.service.Cluster != nil { // it refuses its keys at first
		c.service.Cluster.AwaitMaster(key, nil)
	}
	over()
}

// sparedBy tells which locks and sessions another master of a Cluster has. Other topologies have none.
func (c *campaign) sparedBy(master *servers.Redis) func(key string) bool {
	spared := make(map[string]bool)
	if c.service.Cluster != nil {
		this := epoch(now(), c.start, c.plan.rotate)
		for _, key := range slices.Concat(c.ledger.inUse(), hotKeysOf(this), hotKeysOf(this+1)) {
			spared[key] = c.service.Master(lockKey(key)) != master
		}
	}
	return func(key string) bool { return spared[key] }
}

func pauseClients(c *campaign, h *hit) {
	if _, err := c.masterFor(h).Do("CLIENT", "PAUSE", strconv.FormatInt(h.lasts.Milliseconds(), 10), "ALL"); err != nil {
		c.misses(h, "CLIENT PAUSE: %v", err)
	}
}

func pauseServer(c *campaign, h *hit) {
	if c.postgres != nil {
		c.postgres.Pause()
		h.restore = c.postgres.Resume
		return
	}
	master := c.masterFor(h)
	master.Pause()
	h.restore = master.Resume
}

func flushScripts(c *campaign, h *hit) {
	flushed := 0
	for until := h.at + int64(h.lasts); now() < until; time.Sleep(2 * time.Millisecond) {
		for _, node := range c.service.Nodes() {
			if _, err := node.Do("SCRIPT", "FLUSH"); err == nil { // a replica may be down
				flushed++
			}
		}
	}
	if flushed == 0 {
		c.misses(h, "no server has flushed its scripts")
	}
}

// busyScript runs a script that does not end until it is killed.
func busyScript(c *campaign, h *hit) {
	master := c.masterFor(h)
	must(c, master, "CONFIG", "SET", "busy-reply-threshold", "20")
	var looping sync.WaitGroup
	looping.Go(func() { _, _ = master.Do("EVAL", "while true do end", "0") })
	h.restore = func() {
		killed := servers.Within(5*time.Second, func() bool {
			_, err := master.Do("SCRIPT", "KILL")
			return err == nil
		})
		if !killed {
			c.misses(h, "there is no script to be killed")
		}
		looping.Wait()
		must(c, master, "CONFIG", "SET", "busy-reply-threshold", "5000")
	}
}

// sets sends one command to a master, and another one when the fault is over.
func sets(on, off string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		master := c.masterFor(h)
		must(c, master, strings.Fields(on)...)
		h.restore = func() { must(c, master, strings.Fields(off)...) }
	}
}

// moveSlot moves the slot of a lock that all want.
func moveSlot(c *campaign, h *hit) {
	keys := hotKeysOf(c.epoch())
	c.service.Cluster.MoveSlot(lockKey(keys[h.victim%len(keys)]))
}

// halfMoveSlot has the slot of a lock that all want on its way to another master for a while: what
// is there is served where it is, what is new at the other one, and a script that needs both is
// turned away.
func halfMoveSlot(c *campaign, h *hit) {
	keys := hotKeysOf(c.epoch())
	h.restore = c.service.Cluster.BeginMove(lockKey(keys[h.victim%len(keys)]))
}

// reload has a node write its data to disk and read it again, slowly.
func reload(c *campaign, h *hit) {
	node := c.service.Nodes()[0]
	must(c, node, "CONFIG", "SET", "key-load-delay", "1000", "loading-process-events-interval-bytes", "1024")
	var reloading sync.WaitGroup
	reloading.Go(func() {
		if _, err := node.Do("DEBUG", "RELOAD"); err != nil && strings.Contains(err.Error(), "ERR") {
			c.t.Errorf("DEBUG RELOAD: %v", err)
		}
	})
	h.restore = func() {
		must(c, node, "CONFIG", "SET", "key-load-delay", "0")
		reloading.Wait()
		servers.Within(10*time.Second, func() bool { _, err := node.Do("GET", "x"); return err == nil })
		// Or the node would find it when it is restarted empty.
		if reply, err := node.Do("CONFIG", "GET", "dir"); err == nil {
			_, dir, _ := strings.Cut(reply, "\n")
			_ = os.Remove(filepath.Join(dir, "dump.rdb"))
		}
	}
}

// withRights takes rights from the servers' default user, which a restart restores. Workers and
// Sentinels are that user, and so is the parent, which needs these rights only to read sessions.
func withRights(taken, given string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		set := func(rules string) {
			for _, node := range c.service.Nodes() {
				must(c, node, append([]string{"ACL", "SETUSER", "default"}, strings.Fields(rules)...)...)
			}
		}
		set(taken)
		h.restore = func() { set(given) }
	}
}

// hangUp closes all connections of a kind.
func hangUp(kind string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		closed := 0
		if c.postgres != nil {
			closed = c.hangUpPostgres(kind)
		}
		for _, node := range c.nodes() {
			list, _ := node.Do("CLIENT", "LIST", "TYPE", kind)
			if _, err := node.Do("CLIENT", "KILL", "TYPE", kind); err != nil { // a replica may be down
				continue
			}
			for client := range strings.Lines(list) {
				if !strings.Contains(client, " name=sentinel-") && !strings.Contains(client, " cmd=client|list ") {
					closed++
				}
			}
		}
		if closed == 0 {
			c.misses(h, "no worker had a connection of the type %s", kind)
		}
	}
}

// must sends a command until it is answered: a fault without an end would be a fault of its own.
func must(c *campaign, node *servers.Redis, args ...string) {
	var err error
	if !servers.Within(10*time.Second, func() bool { _, err = node.Do(args...); return err == nil }) {
		c.t.Errorf("%s: %v", args[0], err)
	}
}
