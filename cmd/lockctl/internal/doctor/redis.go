package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/settings"
)

// The topologies of a Redis.
const (
	alone    = "node"
	sentinel = "sentinel"
	cluster  = "cluster"
	quorum   = "quorum"
)

// redisServer is one Redis, and its answers.
type redisServer struct {
	target
	name     string // host:port
	topology string
	client   *redis.Client

	err error // it does not answer, and nothing below is known
	// facts are INFO, CLUSTER INFO and settings. Those that the user may not read are missing.
	facts map[string]string
}

// newServer is a server of t at an address, over a client of its own with the options of the URL.
func (t target) newServer(addr, topology string, of *redis.Options) *redisServer {
	return &redisServer{target: t, name: addr, topology: topology, client: redis.NewClient(&redis.Options{
		Network: of.Network, Addr: addr, Username: of.Username, Password: of.Password, TLSConfig: of.TLSConfig, DB: of.DB,
		DialTimeout: answerLimit, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
	})}
}

// examine asks servers in the order of their names, and adds what the checks find. It closes their clients.
func (r *report) examine(ctx context.Context, servers []*redisServer) {
	slices.SortFunc(servers, func(a, b *redisServer) int { return strings.Compare(a.name, b.name) })
	for _, s := range servers {
		defer s.client.Close()
		if s.ask(ctx); s.err != nil {
			r.add("connection", s.name, noConnection(s.err))
			continue
		}
		if !r.examined[s.name] {
			r.add("connection", s.name, ok("answers"))
			r.judge(s)
		}
		r.examined[s.name] = true
		r.add("rights", s.name, rights(ctx, s))
	}
}

// ask reads the state and the settings.
func (s *redisServer) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if s.err = s.client.Time(ctx).Err(); s.err != nil {
		return
	}
	names := []string{"appendfsync", "min-replicas-to-write"}
	info, _ := s.client.Info(ctx).Result()
	if s.topology == cluster {
		state, _ := s.client.ClusterInfo(ctx).Result()
		info += state
		names = append(names, "cluster-node-timeout")
	}
	s.facts = factsOf(info)
	for _, setting := range settings.Redis {
		names = append(names, setting.Name)
	}
	for _, name := range names {
		found, _ := s.client.ConfigGet(ctx, name).Result()
		maps.Copy(s.facts, found)
	}
}

// factsOf reads the lines of INFO.
func factsOf(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			facts[name] = value
		}
	}
	return facts
}

// number returns a fact as a number, or 0.
func number(facts map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(facts[name], 10, 64)
	return n
}

// judge adds the checks whose facts are known.
func (r *report) judge(s *redisServer) {
	if s.facts["role"] != "" {
		r.add("role", s.name, role(s))
		r.add("persistence", s.name, persistence(s))
		r.add("replicas", s.name, replicas(s))
	}
	if s.facts["cluster_state"] != "" {
		r.add("slots", s.name, slots(s))
	}
	if timeout := "cluster-node-timeout"; s.facts[timeout] != "" {
		r.add("failover time", s.name, failover(timeout, number(s.facts, timeout), s.ttl))
	}
	r.settings(s.name, settings.Redis, s.facts, "CONFIG SET %s %s")
	if s.facts["role"] == "" || s.facts["appendfsync"] == "" {
		r.add("settings", s.name, result(Note, "Redis refuses INFO or CONFIG GET",
			"Checks of what these commands show are left out.",
			"Run lockctl doctor as an operator who may send them, or look at the console of the provider."))
	}
}

func role(s *redisServer) Finding {
	found := fmt.Sprintf("a replica of %s:%s", s.facts["master_host"], s.facts["master_port"])
	switch {
	case s.facts["role"] == "master":
		return ok("master")
	case s.topology == alone || s.topology == quorum:
		return result(Problem, found, "It refuses every lock operation (READONLY).",
			"Use the address of a master, or a redis+sentinel:// URL.")
	}
	return ok("%s", found)
}

func persistence(s *redisServer) Finding {
	fsync := s.facts["appendfsync"]
	switch {
	case s.topology == quorum:
		return ok("restart_delay makes up for lost writes")
	case s.facts["aof_enabled"] == "0":
		return result(Warning, "no append-only file",
			"A restart loses locks, tokens and exchanges since the last snapshot. A lock may then have two holders for a TTL.",
			"CONFIG SET appendonly yes")
	case fsync == "no":
		return result(Warning, "appendonly yes, appendfsync no",
			"A crash of the machine loses what its system has not written yet: about 30 s.",
			"CONFIG SET appendfsync everysec")
	}
	return ok("appendonly yes, appendfsync %s", fsync)
}

func replicas(s *redisServer) Finding {
	n, least := number(s.facts, "connected_slaves"), cmp.Or(s.facts["min-replicas-to-write"], "unknown")
	found := fmt.Sprintf("%d replicas, min-replicas-to-write %s", n, least)
	switch failsOver := s.topology == sentinel || s.topology == cluster; {
	case failsOver && n == 0 && s.facts["role"] == "master":
		return result(Warning, found, "If this master dies, no server takes over its locks.", "Add a replica.")
	case failsOver && s.facts["role"] == "master" && n <= number(s.facts, "min-replicas-to-write"):
		return result(Note, found, "After a failover, the next master refuses writes until the old one is back.", "Add a replica.")
	case n > 1 && least == "0":
		return result(Warning, found,
			"A master that is cut off goes on without its replicas. A failover then loses all that it has granted and stored since.",
			"CONFIG SET min-replicas-to-write 1, and CONFIG SET min-replicas-max-lag 2")
	}
	return ok("%s", found)
}

func slots(s *redisServer) Finding {
	state, up := s.facts["cluster_state"], number(s.facts, "cluster_slots_ok")
	found := fmt.Sprintf("state %s, %d of 16384 slots have a master that answers", state, up)
	if state == "ok" && up == 16384 {
		return ok("%s", found)
	}
	return result(Problem, found,
		"Locks in the other slots fail (CLUSTERDOWN). Unless cluster-require-full-coverage is no, all locks do.",
		fmt.Sprintf("redis-cli --cluster check %s, then redis-cli --cluster fix %[1]s", s.name))
}
