package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

var serverFaults = []*fault{
	{name: "server restarted empty", on: redises, breaks: true, of: ofServer, strike: restartEmpty},
	{name: "clients paused", on: scripted, of: ofServer, short: 200 * ms, long: 1200 * ms, strike: pauseClients},
	{name: "server stopped for a moment", on: everywhere, of: ofServer, short: 200 * ms, long: 1200 * ms, strike: pauseServer},
	{name: "scripts flushed", on: scripted, of: ofServer, short: 300 * ms, long: 1000 * ms, strike: flushScripts},
	{name: "out of memory", on: scripted, of: ofServer, short: 200 * ms, long: 1500 * ms, strike: sets(aMaster, "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0")},
	{name: "busy script", on: scripted, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: busyScript},
	{name: "read-only", on: append(slices.Clone(servers.Quorums), "node"), of: ofServer, short: 200 * ms, long: 1000 * ms, strike: sets(aMaster, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")},
	{name: "loading", on: []string{"node"}, of: ofServer, short: 200 * ms, long: 1000 * ms, heals: 1000 * ms, strike: reload},
	{name: "slot on the move", on: []string{"cluster"}, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: moveSlot},
	{name: "no right to notify", on: scripted, of: ofServer, short: 500 * ms, long: 2000 * ms, strike: rights("resetchannels -publish -subscribe", "allchannels +publish +subscribe")},
	{name: "no right to run scripts", on: scripted, of: ofServer, short: 200 * ms, long: 1200 * ms, strike: rights("-eval -evalsha", "+eval +evalsha")},
	{name: "slot moved", on: []string{"cluster"}, of: ofServer, strike: moveSlot},
	{name: "subscribers disconnected", on: everywhere, of: ofServer, strike: hangUp("pubsub")},
	{name: "clients disconnected", on: everywhere, of: ofServer, strike: hangUp("normal")},
}

func (c *campaign) masterFor(h *hit) *servers.Redis {
	masters := c.service.Masters()
	if len(masters) == 0 {
		c.t.Fatal("there is no master")
	}
	return masters[h.victim%len(masters)]
}

// missed is for how long a server may be silent before the others take it for dead.
const missed = 3 * time.Second

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
}

func (c *campaign) storeAddrs() []string {
	if c.sessions != nil {
		return c.sessions.Addrs()
	}
	return c.service.Addrs()
}

func (c *campaign) nodes() []*servers.Redis {
	if c.service == nil {
		return nil
	}
	return c.service.Nodes()
}

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

// client talks to masters alone: for a moment a Sentinel may name one that has come back as a
// replica, and shows old data.
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
	defer c.replaces()()
	c.ledger.judgeSoFar()
	c.calls.judgeUntil(now(), false, true)
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	c.windows.spare(h.window, spares)
	c.windows.begin(h.window)
	master.Kill()
	c.windows.forget(h.window, 0, now())
	c.await(h, 0, slices.DeleteFunc(c.hot(), spares), 0)
	// Tokens run ahead of the clock by so much. A server that is back earlier, and empty, grants
	// lower ones.
	time.Sleep(time.Duration(driver.FenceBlock) * time.Microsecond)
	master.Restart()
	if c.service.Cluster != nil { // it refuses its keys at first
		c.service.Cluster.AwaitMaster(key, nil)
	}
	c.windows.close(h.window)
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

// sets sends one command to some nodes, and another one when the fault is over.
func sets(to func(*campaign, *hit) []*servers.Redis, on, off string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		nodes := to(c, h)
		send := func(command string) {
			for _, node := range nodes {
				must(c, node, strings.Fields(command)...)
			}
		}
		send(on)
		h.restore = func() { send(off) }
	}
}

func aMaster(c *campaign, h *hit) []*servers.Redis  { return []*servers.Redis{c.masterFor(h)} }
func allNodes(c *campaign, _ *hit) []*servers.Redis { return c.nodes() }

// rights takes rights from the servers' default user, which a restart restores. Workers and
// Sentinels are that user, and so is the parent, which needs these rights only to read sessions.
func rights(taken, given string) func(*campaign, *hit) {
	const user = "ACL SETUSER default "
	return sets(allNodes, user+taken, user+given)
}

// moveSlot has the slot of a lock that all want on its way to another master until the fault is over.
func moveSlot(c *campaign, h *hit) {
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

var replicatedOn = []string{"sentinel", "cluster"}

var failoverFaults = []*fault{
	{name: "failover that loses the last writes", on: replicatedOn, breaks: true, of: ofServer, short: 100 * ms, long: 600 * ms, heals: 7000 * ms, strike: loseMaster},
	{name: "master killed", on: replicatedOn, breaks: true, of: ofServer, heals: 7000 * ms, strike: loseMaster},
	{name: "failover that loses nothing", on: replicatedOn, of: ofServer, heals: 7000 * ms, strike: replaceMaster},
}

// loseMaster kills a master. A fault that lasts first cuts the master from its replicas.
func loseMaster(c *campaign, h *hit) {
	defer c.replaces()()
	master := c.masterFor(h)
	key, spares := c.keyOf(master), c.sparedBy(master)
	c.windows.spare(h.window, spares)
	replicas := c.service.Replicas(master)
	detached := now() - int64(replicationLag)
	if h.lasts > 0 {
		master.Detach()
		time.Sleep(h.lasts)
	}
	c.windows.begin(h.window)
	master.Kill()
	c.windows.forget(h.window, detached, now())
	kept := c.kept(replicas)
	c.await(h, 0, slices.DeleteFunc(c.hot(), spares), 0)
	next := c.service.AwaitMaster(key, master)
	c.windows.kept(h.window, kept[next])
	c.windows.close(h.window) // what follows does not concern the locks
	c.service.ComeBack(master, next)
}

// replicationLag is how much of what a master has acknowledged its replicas may lack.
const replicationLag = 250 * time.Millisecond

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
	defer c.replaces()()
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

// caughtUp reports whether the replicas of a master, which takes no writes, soon have all it has.
func (c *campaign) caughtUp(master *servers.Redis) bool {
	replicas := c.service.Replicas(master)
	return servers.Within(1500*time.Millisecond, func() bool {
		offset := master.Info("master_repl_offset")
		return offset != "" && !slices.ContainsFunc(replicas, func(r *servers.Redis) bool {
			return r.Info("slave_repl_offset") != offset
		})
	})
}

const (
	nodesKilled    = "minority of nodes killed" // that of -faults chaos on a quorum
	nodesRestarted = "all nodes restarted empty"
)

// No fault of a minority hinders a quorum. Nodes that are back empty break no lock, as long as they do
// not count.
var quorumFaults = []*fault{
	{name: nodesKilled, on: servers.Quorums, of: ofServer, barred: true, short: 200 * ms, long: 1500 * ms, heals: 3000 * ms, strike: outage(some, (*servers.Redis).Kill, (*servers.Redis).Restart)},
	{name: "minority of nodes stopped", on: servers.Quorums, of: ofServer, barred: true, short: 500 * ms, long: 2500 * ms, strike: outage(minority, (*servers.Redis).Pause, (*servers.Redis).Resume)},
	{name: "majority of nodes stopped", on: servers.Quorums, of: ofServer, short: 200 * ms, long: 1500 * ms, strike: outage(majority, (*servers.Redis).Pause, (*servers.Redis).Resume)},
	{name: nodesRestarted, on: servers.Quorums, of: ofServer, heals: 3000 * ms, strike: restartNodes},
	{name: "grants end on a node", on: servers.Quorums, breaks: true, of: ofServer, strike: endGrants},
}

func majority(c *campaign, _ *hit) int { return c.service.Quorum.Size() }
func minority(c *campaign, h *hit) int { return len(c.nodes()) - majority(c, h) }
func some(c *campaign, h *hit) int     { return 1 + h.rng.IntN(minority(c, h)) }

func (c *campaign) someNodes(h *hit, n int) (some []*servers.Redis) {
	nodes := c.nodes()
	for i := range n {
		some = append(some, nodes[(h.victim+i)%len(nodes)])
	}
	return some
}

// outage is of some nodes. Killed ones come back empty, and the next fault waits until they count again.
func outage(n func(*campaign, *hit) int, begin, end func(*servers.Redis)) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		nodes := c.someNodes(h, n(c, h))
		for _, node := range nodes {
			begin(node)
		}
		if h.barred {
			c.await(h, 0, c.hot(), c.plan.bar())
		}
		h.restore = func() {
			for _, node := range nodes {
				end(node)
			}
			c.awaitOld(nodes)
		}
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

var onPostgres = []string{"postgres"}

// A crash breaks no lock: a grant is on disk before it is answered. A release may be lost.
var postgresFaults = []*fault{
	{name: "server crashes", on: onPostgres, of: ofServer, short: 50 * ms, long: 500 * ms, heals: 1000 * ms, strike: crash},
	{name: "rows locked", on: onPostgres, of: ofServer, short: 200 * ms, long: 1500 * ms, strike: lockRows},
	{name: "read-only", on: onPostgres, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: setting("default_transaction_read_only", "on")},
	{name: "serializable", on: onPostgres, of: ofServer, short: 500 * ms, long: 1500 * ms, strike: setting("default_transaction_isolation", "serializable")},
	{name: "statements time out", on: onPostgres, of: ofServer, short: 200 * ms, long: 1000 * ms, strike: setting("statement_timeout", "3ms")},
}

func (c *campaign) startPostgres() {
	c.postgres = servers.StartPostgres(c.t, c.plan.server...)
	c.database = migrated.Database(c.t, c.postgres)
}

// openPostgres makes an application's pool.
func openPostgres(url string, dial faultnet.DialFunc) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = pool
	if dial != nil {
		config.ConnConfig.DialFunc = dial
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

func crash(c *campaign, h *hit) {
	c.postgres.Kill()
	h.restore = c.postgres.Restart
}

// lockRows has a transaction of another program lock the rows of the locks that all want.
func lockRows(c *campaign, h *hit) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.database.URL())
	if err != nil {
		c.misses(h, "connect: %v", err)
		return
	}
	h.restore = func() { _ = conn.Close(ctx) }
	var tag fmt.Stringer
	if _, err = conn.Exec(ctx, "BEGIN"); err == nil {
		tag, err = conn.Exec(ctx, "SELECT FROM belugalock.lease WHERE key LIKE '%/hot-%' ORDER BY namespace, key FOR UPDATE")
	}
	if err != nil || tag.String() == "SELECT 0" {
		c.misses(h, "no row was locked: %v", err)
	}
}

func setting(name, value string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		set := func(sql string) {
			for _, sql := range []string{sql, "SELECT pg_reload_conf()"} {
				var err error
				if !servers.Within(10*time.Second, func() bool { _, err = c.postgres.Do(sql); return err == nil }) {
					c.t.Errorf("%s: %v", sql, err)
				}
			}
		}
		set(fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
		h.restore = func() { set("ALTER SYSTEM RESET " + name) }
	}
}

// hangUpPostgres ends the connections of workers, or, for "pubsub", those that listen.
func (c *campaign) hangUpPostgres(kind string) (closed int) {
	which := "true"
	if kind == "pubsub" {
		// pglock's advisory lock.
		which = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1818586987)"
	}
	n, _ := c.database.Do("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity " +
		"WHERE datname = current_database() AND pid <> pg_backend_pid() AND " + which)
	_, _ = fmt.Sscan(n, &closed)
	return closed
}
