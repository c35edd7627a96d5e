package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
)

// newServer is a server of t at an address, over a client of its own with the options of the URL.
func (t target) newServer(addr, topology string, of *redis.Options) *redisServer {
	return &redisServer{server: server{target: t, name: addr, topology: topology}, client: redis.NewClient(&redis.Options{
		Network: of.Network, Addr: addr, Username: of.Username, Password: of.Password, TLSConfig: of.TLSConfig, DB: of.DB,
		DialTimeout: answerLimit, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
	})}
}

func closeAll(servers []*redisServer) {
	for _, s := range servers {
		_ = s.client.Close()
	}
}

// redis examines one node, the nodes that Sentinels know, or those of a Cluster.
func (r *report) redis(ctx context.Context, t target) error {
	client, err := redislock.ParseURL(t.url)
	if err != nil {
		return err
	}
	defer client.Close()
	var servers []*redisServer
	defer func() { closeAll(servers) }()
	switch c := client.(type) {
	case *redis.ClusterClient:
		servers = r.cluster(ctx, t, c)
		r.clientTimeout(c.Options().ReadTimeout, t.ttl)
	case *redis.Client:
		if scheme, _, _ := strings.Cut(t.url, "://"); strings.HasSuffix(scheme, "+sentinel") {
			servers = r.sentinels(ctx, t, c.Options())
		} else {
			servers = []*redisServer{t.newServer(c.Options().Addr, alone, c.Options())}
		}
		r.clientTimeout(c.Options().ReadTimeout, t.ttl)
	}
	r.examine(ctx, servers)
	r.add("clocks", "", clocks(servers))
	return nil
}

func (r *report) clientTimeout(timeout, ttl time.Duration) {
	if timeout < 0 || timeout >= ttl {
		r.add("read timeout", "", result(Warning, fmt.Sprintf("read_timeout %v, TTL %v", timeout, ttl),
			"A renewal that hangs ends after the lease, so no second one is tried.", "Set read_timeout to a third of the TTL."))
	}
}

// cluster returns the nodes of a Cluster.
func (r *report) cluster(ctx context.Context, t target, c *redis.ClusterClient) (servers []*redisServer) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var mu sync.Mutex
	err := c.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, t.newServer(node.Options().Addr, cluster, node.Options()))
		return nil
	})
	if err != nil && len(servers) == 0 {
		for _, addr := range c.Options().Addrs { // so that each says why it does not answer
			servers = append(servers, t.newServer(addr, cluster, &redis.Options{Username: c.Options().Username,
				Password: c.Options().Password, TLSConfig: c.Options().TLSConfig}))
		}
		r.add("slots", "", result(Problem, err.Error(), "No node of the URL shows a Cluster.",
			"Use redis:// if the server is no Cluster. Otherwise see the nodes below."))
	}
	slices.SortFunc(servers, func(a, b *redisServer) int { return strings.Compare(a.name, b.name) })
	return servers
}

// clocks compares servers: after a failover, or in a quorum, their clocks follow each other.
func clocks(servers []*redisServer) Finding {
	up := slices.DeleteFunc(slices.Clone(servers), func(s *redisServer) bool { return s.err != nil })
	if len(up) < 2 {
		return Finding{}
	}
	slices.SortStableFunc(up, func(a, b *redisServer) int { return cmp.Compare(a.offset, b.offset) })
	first, last := up[0], up[len(up)-1]
	apart := last.offset - first.offset
	if apart > slow+first.took+last.took {
		return result(Warning, fmt.Sprintf("%s is %v ahead of %s", last.name, apart.Round(time.Millisecond), first.name),
			"After a failover, or on a node that has lost its data, tokens may fall. Stores then refuse holders until a token is raised.",
			"Run NTP on all servers.")
	}
	return ok("the clocks of the servers differ by %v at most", apart.Round(time.Millisecond))
}

// The election of a master takes about a second. A setting below leastDown replaces masters that are only
// slow, and one above wantedDown has no use.
const (
	election   = time.Second
	leastDown  = 2 * time.Second
	wantedDown = 5 * time.Second
)

// failover compares the time of a failover with two thirds of the TTL, for which a lease lasts at least after
// its last renewal, and with a second below the TTL.
func failover(setting string, ms int64, ttl time.Duration) Finding {
	found := fmt.Sprintf("%s %d, TTL %v", setting, ms, ttl)
	most := min(ttl*2/3, ttl-time.Second) - election
	down := time.Duration(ms) * time.Millisecond
	if down < most {
		return ok("%s", found)
	}
	taken := down + election
	do := fmt.Sprintf("aise the TTL above %v.", (max(taken*3/2, taken+time.Second) + 99*time.Millisecond).Truncate(100*time.Millisecond))
	if fits := min(wantedDown, most-1).Truncate(100 * time.Millisecond); fits >= leastDown {
		do = fmt.Sprintf("Set %s to %d, or r%s", setting, fits.Milliseconds(), do)
	} else {
		do = "R" + do
	}
	return result(Warning, found, "A failover takes longer than two thirds of the TTL, so leases end during it.", do)
}

// view is what a Sentinel knows.
type view struct {
	master   map[string]string
	replicas []map[string]string
	err      error
}

func viewOf(ctx context.Context, c *redis.SentinelClient, name string) (v view) {
	defer c.Close()
	if v.master, v.err = c.Master(ctx, name).Result(); v.err == nil {
		v.replicas, _ = c.Replicas(ctx, name).Result()
	}
	return v
}

// sentinels examines the Sentinels of a URL, and returns the master and the replicas that they name. It
// asks all at the same time: one that hangs takes no time from the others.
func (r *report) sentinels(ctx context.Context, t target, of *redis.Options) []*redisServer {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	hosts, query := hostsOf(t.url)
	views := make([]view, len(hosts))
	var asked sync.WaitGroup
	for i, addr := range hosts {
		asked.Go(func() {
			views[i] = viewOf(ctx, redis.NewSentinelClient(&redis.Options{Addr: addr, Username: query.Get("sentinel_username"),
				Password: query.Get("sentinel_password"), TLSConfig: of.TLSConfig, DialerRetries: 1, MaxRetries: -1,
				ContextTimeoutEnabled: true, DisableIdentity: true}), query.Get("master_name"))
		})
	}
	asked.Wait()
	masters, nodes, answered, known := map[string]bool{}, map[string]bool{}, 0, 0
	for i, addr := range hosts {
		state, err := views[i].master, views[i].err
		if err != nil {
			do := "Start the Sentinel, or correct the URL."
			switch text := err.Error(); {
			case strings.Contains(text, "No such master"):
				do = "Correct master_name in the URL: SENTINEL MASTERS lists the names."
			case strings.Contains(text, "unknown command"):
				do = "This is a Redis, and no Sentinel. Give the URL the ports of the Sentinels, 26379 by default."
			}
			r.add("sentinel", addr, result(Problem, err.Error(), "The Sentinel names no master.", do))
			continue
		}
		answered++
		known = max(known, int(number(state, "num-other-sentinels"))+1)
		master := state["ip"] + ":" + state["port"]
		masters[master], nodes[master] = true, true
		for _, replica := range views[i].replicas {
			nodes[replica["ip"]+":"+replica["port"]] = true
		}
		r.add("sentinel", addr, ok("names the master %s", master))
		r.add("failover time", addr, failover("down-after-milliseconds", number(state, "down-after-milliseconds"), t.ttl))
	}
	switch {
	case len(masters) > 1:
		r.add("sentinels", "", result(Problem, "they name different masters", "Two masters may grant one lock.",
			"Wait for the end of a failover. If it does not end, look at the network between the Sentinels."))
	case answered > 0 && known < 3:
		r.add("sentinels", "", result(Warning, fmt.Sprintf("%d Sentinels know each other", known),
			"If one of them fails, there is no failover.", "Run three Sentinels or more."))
	}
	var servers []*redisServer
	for addr := range nodes {
		servers = append(servers, t.newServer(addr, sentinel, of))
	}
	slices.SortFunc(servers, func(a, b *redisServer) int { return strings.Compare(a.name, b.name) })
	return servers
}

// hostsOf returns the hosts and the parameters of a URL that redislock.ParseURL has accepted.
func hostsOf(rawURL string) (hosts []string, query url.Values) {
	before, text, _ := strings.Cut(rawURL, "?")
	query, _ = url.ParseQuery(text)
	_, rest, _ := strings.Cut(before, "://")
	rest, _, _ = strings.Cut(rest, "/")
	for _, host := range append(strings.Split(rest[strings.LastIndexByte(rest, '@')+1:], ","), query["addr"]...) {
		if host != "" && !strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":") {
			host += ":26379"
		}
		hosts = append(hosts, host)
	}
	return hosts, query
}

// quorum examines the nodes of a quorum.
func (r *report) quorum(ctx context.Context, t target) error {
	clients, delay, err := redlock.ParseURL(t.url)
	if err != nil {
		return err
	}
	var servers []*redisServer
	var timeout time.Duration // the same for all nodes
	for _, client := range clients {
		c := client.(*redis.Client) // no scheme of a quorum has another client
		timeout = c.Options().ReadTimeout
		servers = append(servers, t.newServer(c.Options().Addr, quorum, c.Options()))
		_ = c.Close()
	}
	r.clientTimeout(timeout, t.ttl)
	defer closeAll(servers)
	r.examine(ctx, servers)
	r.add("clocks", "", clocks(servers))
	r.add("nodes", "", nodes(servers))
	r.add("restart delay", "", restarts(servers, delay, t.ttl))
	return nil
}

// nodes looks at the number of nodes, and for two of them at one server.
func nodes(servers []*redisServer) Finding {
	n, up, at := len(servers), 0, map[string]string{}
	for _, s := range servers {
		if s.err != nil {
			continue
		}
		up++
		id := s.facts["run_id"]
		if other := at[id]; id != "" && other != "" {
			return result(Problem, fmt.Sprintf("%s and %s are one server", other, s.name),
				"One of the two nodes does not count, so the quorum survives fewer failures.", "Give each node a server of its own.")
		}
		at[id] = s.name
	}
	need := n/2 + 1
	switch {
	case n < 3 || n%2 == 0:
		return result(Problem, fmt.Sprintf("%d nodes", n), "The library refuses fewer than 3 nodes and an even number. "+
			"An even number survives no more failures than one node less.", "Use 3 or 5 nodes.")
	case up < need:
		return result(Problem, fmt.Sprintf("%d of %d nodes answer", up, n), "No lock is granted, and held leases end.",
			fmt.Sprintf("Start nodes until %d answer.", need))
	case up < n:
		return result(Warning, fmt.Sprintf("%d of %d nodes answer", up, n),
			fmt.Sprintf("Locks survive the loss of %d more.", up-need), "Start the other nodes.")
	}
	return ok("%d nodes on servers of their own", n)
}

// restarts looks at the time for which a restarted node does not count. The driver takes at least 30 s
// if the URL has no restart_delay.
func restarts(servers []*redisServer, delay, ttl time.Duration) Finding {
	if delay == 0 {
		delay = max(30*time.Second, ttl)
	}
	counting, up, lossy := 0, 0, ""
	for _, s := range servers {
		if s.err == nil {
			up++
		}
		if s.err == nil && time.Duration(s.number("uptime_in_seconds")-1)*time.Second >= delay {
			counting++
		}
		if s.err == nil && (s.facts["aof_enabled"] == "0" || s.facts["appendfsync"] != "always") {
			lossy = s.name
		}
	}
	switch {
	case delay < 0 && lossy != "":
		return result(Problem, "off, and "+lossy+" may lose writes in a restart",
			"A node that lost its locks counts at once, so a lock may have two holders.", "Remove restart_delay from the URL.")
	case delay > 0 && delay < ttl:
		return result(Problem, fmt.Sprintf("restart_delay %v, TTL %v", delay, ttl),
			"A node counts again before the grants from before its restart have ended, so a lock may have two holders.",
			"Set restart_delay to the largest TTL of all programs, or leave it out.")
	case delay > 0 && counting < len(servers)/2+1 && up > len(servers)/2:
		return result(Warning, fmt.Sprintf("%d of %d nodes are up for %v", counting, len(servers), delay),
			"A node does not count for that time after its start. No lock is granted until a quorum counts.", "Wait for that time.")
	}
	return ok("%v", delay)
}
