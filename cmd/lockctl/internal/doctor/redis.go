package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The topologies of a Redis.
const (
	alone    = "node"
	sentinel = "sentinel"
	cluster  = "cluster"
	quorum   = "quorum"
)

// redisServer is a server that is a Redis.
type redisServer struct {
	server
	client *redis.Client

	err    error // it does not answer, and nothing below is known
	took   time.Duration
	offset time.Duration // its clock minus the local one
}

const (
	evicts    = "Redis may drop a held lock, its last token, or a session. All of them may expire, so each policy concerns them."
	noevict   = "CONFIG SET maxmemory-policy noeviction"
	used      = "${used_memory_human} used of ${limit_human}, ${limit_of}"
	makeRoom  = "Raise maxmemory, or set Retention.IdleTTL and Retention.MaxExchanges of the store."
	replicaOf = "a replica of ${master_host}:${master_port}"
	replicas  = "${connected_slaves} replicas, min-replicas-to-write ${min-replicas-to-write}"
	noDisk    = "the last write to the disk has failed"
	misconf   = "Redis refuses writes (MISCONF)."
	leftOut   = "Checks of the settings behind these commands are left out."
	lookDisk  = "Look at the disk and at the log of the server."
)

var redisRules = []rule{
	{"settings", Note, known("lacks"), "Redis refuses ${refused}", leftOut,
		"If this is an operator: ACL SETUSER ${user} ${lacks}"},
	{"settings", Note, known("refused"), "Redis refuses ${refused}", leftOut, "Look at the console of the provider."},
	{"settings", OK, always, "can be read", "", ""},

	{"version", Problem, old, "Redis ${redis_version}", "It lacks GETEX, and versions before 6.0 lack ACL users. Lock operations fail.",
		"Upgrade to Redis 6.2 or newer."},
	{"version", OK, known("redis_version"), "Redis ${redis_version}", "", ""},

	{"role", OK, is("role", "master"), "master", "", ""},
	{"role", Problem, in(quorum, known("role")), replicaOf,
		"It refuses every lock operation (READONLY). A quorum needs independent nodes.", "REPLICAOF NO ONE"},
	{"role", Problem, in(alone, known("role")), replicaOf, "It refuses every lock operation (READONLY).",
		"Use the address of the master, or a redis+sentinel:// URL."},
	{"role", Warning, is("master_link_status", "down"), replicaOf + " without a connection to it",
		"A failover to this replica loses locks and exchanges.", "Look at the log of the replica and at the network."},
	{"role", OK, known("role"), replicaOf, "", ""},

	{"eviction", OK, is("maxmemory_policy", "noeviction"), "noeviction", "", ""},
	{"eviction", Warning, both(known("maxmemory_policy"), zero("maxmemory")), "${maxmemory_policy}, without maxmemory",
		"With maxmemory: " + evicts, noevict},
	{"eviction", Problem, known("maxmemory_policy"), "${maxmemory_policy}, with maxmemory ${maxmemory_human}",
		evicts + " If the memory is full, raise maxmemory first: with noeviction, writes then fail (OOM).", noevict},

	{"memory", Problem, fuller("used_memory", "limit", 100), used,
		"Acquires and Saves fail (OOM). Held leases are still renewed and released.", makeRoom},
	{"memory", Warning, fuller("used_memory", "limit", 80), used, "Soon acquires and Saves fail (OOM).", makeRoom},
	{"memory", OK, known("limit"), used, "", ""},

	{"persistence", Problem, is("rdb_last_bgsave_status", "err"), noDisk, misconf, lookDisk},
	{"persistence", Problem, is("aof_last_write_status", "err"), noDisk, misconf, lookDisk},
	{"persistence", OK, in(quorum, is("aof_enabled", "0")), "no append-only file, which RestartDelay makes up for", "", ""},
	{"persistence", Warning, is("aof_enabled", "0"), "no append-only file",
		"A restart loses locks, tokens and exchanges since the last snapshot. A lock may then have two holders for a TTL.",
		"CONFIG SET appendonly yes, and appendonly yes in redis.conf"},
	{"persistence", Warning, is("appendfsync", "no"), "appendonly yes, appendfsync no",
		"A crash of the machine loses what its system has not written yet: about 30 s.", "CONFIG SET appendfsync everysec"},
	{"persistence", OK, known("aof_enabled"), "appendonly yes, appendfsync ${appendfsync}", "", ""},

	{"replicas", Warning, in(quorum, replicated(1)), replicas, "A promoted replica of a node may lack locks, and no program notices.",
		"Run the nodes of a quorum without replicas."},
	{"replicas", Problem, missingReplicas, replicas + ", and ${replicas_in_time} of them in time",
		"The master refuses every write (NOREPLICAS).", "Bring the replicas back, or lower min-replicas-to-write."},
	{"replicas", Warning, bare, replicas, "If this master dies, no server takes over its locks.", "Add a replica."},
	{"replicas", Warning, both(replicated(2), is("min-replicas-to-write", "0")), replicas,
		"A master that is cut off goes on without its replicas. A failover then loses all that it has granted and stored since.",
		"CONFIG SET min-replicas-to-write 1, and CONFIG SET min-replicas-max-lag 2"},
	{"replicas", Note, both(is("connected_slaves", "1"), replicated(1)), replicas,
		"With one replica, min-replicas-to-write 1 makes a restart of the replica an outage. " +
			"With 0, a cut-off master loses what it has granted and stored.", "Run two replicas, with min-replicas-to-write 1."},
	{"replicas", OK, is("role", "master"), replicas, "", ""},

	{"connections", Warning, fuller("connected_clients", "maxclients", 90), "${connected_clients} of ${maxclients} clients",
		"Soon Redis refuses connections, those of renewals among them.", "Raise maxclients, or find the clients with CLIENT LIST."},
	{"connections", OK, known("maxclients"), "${connected_clients} of ${maxclients} clients", "", ""},

	{"idle timeout", Warning, short, "timeout ${timeout}",
		"Redis closes idle connections between two renewals, which are up to ${renewal} apart. Each renewal connects anew.",
		"CONFIG SET timeout 0"},
	{"idle timeout", Warning, is("tcp-keepalive", "0"), "tcp-keepalive 0",
		"Redis keeps the connections of dead machines, up to maxclients.", "CONFIG SET tcp-keepalive 300"},
	{"idle timeout", OK, known("timeout"), "timeout ${timeout}, tcp-keepalive ${tcp-keepalive}", "", ""},

	{"slots", Problem, lostSlots, "state ${cluster_state}, ${cluster_slots_ok} of 16384 slots have a master that answers",
		"Locks in the other slots fail (CLUSTERDOWN). Unless cluster-require-full-coverage is no, all locks do.",
		"redis-cli --cluster check ${name}, then redis-cli --cluster fix ${name}"},
	{"slots", OK, known("cluster_state"), "all 16384 slots have a master, state ok", "", ""},

	{"expiry", Note, is("lazyfree-lazy-expire", "no"), "lazyfree-lazy-expire no",
		"Redis blocks while it frees a long session that has expired.", "CONFIG SET lazyfree-lazy-expire yes"},

	{"streams", Note, is("stream-node-max-bytes", "4096"), "stream-node-max-bytes 4096",
		"A session with few exchanges takes 5 KB at least. Leave it for long sessions.",
		"CONFIG SET stream-node-max-bytes 1024"},
}

// in holds for a topology alone.
func in(topology string, when func(*server) bool) func(*server) bool {
	return func(s *server) bool { return s.topology == topology && when(s) }
}

func old(s *server) bool {
	var major, minor int
	n, _ := fmt.Sscanf(s.facts["redis_version"], "%d.%d", &major, &minor)
	return n == 2 && (major < 6 || major == 6 && minor < 2)
}

// fuller holds if a number has reached a percentage of its limit.
func fuller(name, limit string, percent int64) func(*server) bool {
	return func(s *server) bool {
		return s.number(limit) > 0 && s.number(name) >= s.number(limit)*percent/100
	}
}

// replicated holds for a master of at least n replicas.
func replicated(n int64) func(*server) bool {
	return func(s *server) bool { return s.facts["role"] == "master" && s.number("connected_slaves") >= n }
}

func missingReplicas(s *server) bool {
	return s.facts["role"] == "master" && s.number("min-replicas-to-write") > s.number("replicas_in_time")
}

// bare holds for a master without a replica in a topology that fails over.
func bare(s *server) bool {
	return s.facts["role"] == "master" && s.number("connected_slaves") == 0 && (s.topology == sentinel || s.topology == cluster)
}

// short compares with the time between two renewals, a third of the TTL.
func short(s *server) bool {
	timeout := time.Duration(s.number("timeout")) * time.Second
	return timeout > 0 && timeout <= s.ttl/3
}

func lostSlots(s *server) bool {
	return s.facts["cluster_state"] != "" && (s.facts["cluster_state"] != "ok" || s.number("cluster_slots_ok") < 16384)
}

// settings are those that rules read by CONFIG GET. The others are in INFO.
var settings = []string{"appendfsync", "min-replicas-to-write", "maxclients", "timeout", "tcp-keepalive",
	"cluster-node-timeout", "lazyfree-lazy-expire", "stream-node-max-bytes"}

// examine asks servers at the same time, and adds what the checks find.
func (r *report) examine(ctx context.Context, servers []*redisServer) {
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() { s.ask(ctx) })
	}
	wg.Wait()
	for _, s := range servers {
		seen := s.examined[s.name]
		if s.err != nil {
			r.add("connection", s.name, s.noConnection())
			continue
		}
		s.examined[s.name] = true
		if !seen {
			r.add("connection", s.name, ok("answers in %v, %s", s.took.Round(10*time.Microsecond), secured(s.client.Options().TLSConfig != nil)))
			r.add("clock", s.name, clock(s.offset, s.took))
		}
		r.add("rights", s.name, rights(ctx, s))
		r.judge(&s.server, redisRules, func(check string) bool {
			if check == "expiry" {
				return s.store
			}
			return !seen
		})
		if s.topology == cluster && !seen && s.facts["cluster-node-timeout"] != "" {
			r.add("failover time", s.name, failover("cluster-node-timeout", s.number("cluster-node-timeout"), s.ttl))
		}
	}
}

// ask reads the clock, the state and the settings.
func (s *redisServer) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if _, s.err = s.client.Time(ctx).Result(); s.err != nil { // the first one connects
		return
	}
	before := time.Now()
	now, err := s.client.Time(ctx).Result()
	s.took, s.err = time.Since(before), err
	s.offset = now.Sub(before.Add(s.took / 2))

	var refused, lacks []string
	refuses := func(err error, command, right string) {
		if err != nil {
			refused = append(refused, command)
			if strings.HasPrefix(err.Error(), "NOPERM") {
				lacks = append(lacks, right)
			}
		}
	}
	info, err := s.client.Info(ctx).Result()
	refuses(err, "INFO", "+info")
	config, failed := map[string]string{}, error(nil)
	for _, name := range settings {
		found, err := s.client.ConfigGet(ctx, name).Result()
		maps.Copy(config, found)
		failed = cmp.Or(failed, err)
	}
	if len(config) == 0 {
		refuses(failed, "CONFIG GET", "+config|get")
	}
	if s.topology == cluster {
		state, err := s.client.ClusterInfo(ctx).Result()
		refuses(err, "CLUSTER INFO", "+cluster|info")
		info += state
	}
	s.learn(info, config)
	s.facts["refused"], s.facts["lacks"] = strings.Join(refused, ", "), strings.Join(lacks, " ")
	s.facts["user"] = s.user()
}

// learn keeps answers as facts, and derives further ones.
func (s *redisServer) learn(info string, config map[string]string) {
	s.facts = map[string]string{"name": s.name, "renewal": (s.ttl / 3).String()}
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			s.facts[name] = value
		}
	}
	maps.Copy(s.facts, config)
	limit := "maxmemory"
	s.facts["limit_of"] = limit
	if s.number(limit) == 0 {
		limit, s.facts["limit_of"] = "total_system_memory", "the memory of the machine"
	}
	s.facts["limit"], s.facts["limit_human"] = s.facts[limit], s.facts[limit+"_human"]
	s.facts["replicas_in_time"] = cmp.Or(s.facts["min_slaves_good_slaves"], s.facts["connected_slaves"])
}

// connectionAdvice is for the errors of a connection to a Redis. Each error contains the last, empty text.
var connectionAdvice = []advice{
	{"WRONGPASS", "Correct the user and the password in the URL."},
	{"NOAUTH", "Add user:password@ to the URL."},
	{"NOPERM", "Grant the user the documented rights, +time among them."},
	{"DB index", "Correct the number of the database in the URL."},
	{"tls:", "Use rediss:// for a server with TLS, and redis:// for one without."},
	{"x509:", "Give the URL tls_ca, the file of the authority, or correct the certificate."},
	{"EOF", "A server with TLS needs rediss://. Otherwise look at the log of the server."},
	{"LOADING", "Wait until the server has read its file."},
	{"max number of clients", "Raise maxclients, or find the clients with CLIENT LIST."},
	{"i/o timeout", hangs},
	{"deadline exceeded", hangs},
	{"", "Start the server, or correct the host and the port of the URL. Check the firewall."},
}

const hangs = "The server or the network hangs: look at the load of the machine, and at the firewall."

func (s *redisServer) noConnection() Finding {
	i := slices.IndexFunc(connectionAdvice, func(a advice) bool { return strings.Contains(s.err.Error(), a.text) })
	do := connectionAdvice[i].do
	if s.client.Options().TLSConfig != nil {
		do += " Use redis:// if the server has no TLS."
	}
	return result(Problem, s.err.Error(), servesNothing, do)
}
