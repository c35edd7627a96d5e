package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/redisurl"
)

// redis examines one node, the nodes that Sentinels know, or those of a Cluster.
func (r *report) redis(ctx context.Context, t target) {
	options, err := redisurl.Parse(t.url)
	switch of := options.(type) {
	case *redis.FailoverOptions:
		r.examine(ctx, r.sentinels(ctx, t, of))
	case *redis.ClusterOptions:
		r.examine(ctx, r.cluster(ctx, t, of))
	case *redis.Options:
		r.examine(ctx, []*redisServer{t.newServer(of.Addr, alone, of)})
	default:
		r.add("connection", "", noConnection(err))
	}
}

// quorum examines the nodes of a quorum. The driver itself refuses an even number of nodes, and two
// addresses of one server.
func (r *report) quorum(ctx context.Context, t target) {
	clients, _, err := redlock.ParseURL(t.url)
	if err != nil {
		r.add("connection", "", noConnection(err))
	}
	var servers []*redisServer
	for _, client := range clients {
		of := client.(*redis.Client).Options() // no scheme of a quorum has another client
		_ = client.Close()
		servers = append(servers, t.newServer(of.Addr, quorum, of))
	}
	r.examine(ctx, servers)
}

// cluster returns the nodes of a Cluster.
func (r *report) cluster(ctx context.Context, t target, of *redis.ClusterOptions) (servers []*redisServer) {
	client := redis.NewClusterClient(of)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var mu sync.Mutex
	err := client.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, t.newServer(node.Options().Addr, cluster, node.Options()))
		return nil
	})
	if err != nil {
		r.add("slots", "", result(Problem, err.Error(), "No node of the URL shows a Cluster.",
			"Start the nodes. Use redis:// if the server is no Cluster."))
	}
	return servers
}

// viewOf returns the master and the replicas that a Sentinel names.
func viewOf(ctx context.Context, addr string, of *redis.FailoverOptions) (master map[string]string, replicas []map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	c := redisurl.NewSentinel(addr, of)
	defer c.Close()
	if master, err = c.Master(ctx, of.MasterName).Result(); err == nil {
		replicas, err = c.Replicas(ctx, of.MasterName).Result()
	}
	return master, replicas, err
}

func addrOf(node map[string]string) string { return node["ip"] + ":" + node["port"] }

// sentinels examines the Sentinels of a URL, and returns the master and the replicas that they name.
func (r *report) sentinels(ctx context.Context, t target, of *redis.FailoverOptions) (servers []*redisServer) {
	masters, nodes, known := map[string]bool{}, map[string]bool{}, 0
	for _, addr := range of.SentinelAddrs {
		master, replicas, err := viewOf(ctx, addr, of)
		if err != nil {
			r.add("sentinel", addr, result(Problem, err.Error(), "The Sentinel names no master.",
				"Start the Sentinel, or correct the URL. SENTINEL MASTERS lists the names for master_name."))
			continue
		}
		known = max(known, int(number(master, "num-other-sentinels"))+1)
		masters[addrOf(master)] = true
		for _, node := range append(replicas, master) {
			nodes[addrOf(node)] = true
		}
		r.add("sentinel", addr, ok("names the master %s", addrOf(master)))
		r.add("failover time", addr, failover("down-after-milliseconds", number(master, "down-after-milliseconds"), t.ttl))
	}
	switch {
	case len(masters) > 1:
		r.add("sentinels", "", result(Problem, "they name different masters", "Two masters may grant one lock.",
			"Wait for the end of a failover. If it does not end, look at the network between the Sentinels."))
	case len(masters) > 0 && known < 3:
		r.add("sentinels", "", result(Warning, fmt.Sprintf("%d Sentinels know each other", known),
			"If one of them fails, there is no failover.", "Run three Sentinels or more."))
	}
	for addr := range nodes {
		servers = append(servers, t.newServer(addr, sentinel, &redis.Options{Username: of.Username, Password: of.Password,
			TLSConfig: of.TLSConfig, DB: of.DB}))
	}
	return servers
}

// failover judges the time before a failover.
func failover(setting string, ms int64, ttl time.Duration) Finding {
	found := fmt.Sprintf("%s %d, TTL %v", setting, ms, ttl)
	above, outlasts := redisurl.Outlasts(ttl, time.Duration(ms)*time.Millisecond)
	if outlasts {
		return ok("%s", found)
	}
	do := fmt.Sprintf("Raise the TTL above %v.", above)
	if _, enough := redisurl.Outlasts(ttl, redisurl.WantedDown); enough {
		do += fmt.Sprintf(" Or set %s to %d.", setting, redisurl.WantedDown.Milliseconds())
	}
	return result(Warning, found, "A failover takes longer than two thirds of the TTL, so leases end during it.", do)
}
