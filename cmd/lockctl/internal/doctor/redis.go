package doctor

import (
	"context"
	"fmt"
	"strconv"
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

// redisServer is one Redis, and its answers.
type redisServer struct {
	target
	name     string // host:port
	client   *redis.Client
	topology string

	err    error // it does not answer, and nothing below is known
	took   time.Duration
	offset time.Duration     // its clock minus the local one
	info   map[string]string // empty if the user may not run INFO
	config map[string]string // without settings that the user may not read
}

// redisChecks are the checks of a Redis that answers.
var redisChecks = []struct {
	name string
	run  func(context.Context, *redisServer) Finding
}{
	{"settings", readable},
	{"version", version},
	{"role", role},
	{"eviction", eviction},
	{"memory", memory},
	{"persistence", persistence},
	{"replicas", replicas},
	{"clock", clock},
	{"connections", clients},
	{"idle timeout", idle},
	{"failover time", nodeTimeout},
}

// settings are those that checks read by CONFIG GET. The others are in INFO.
var settings = []string{"appendfsync", "min-replicas-to-write", "maxclients", "timeout", "tcp-keepalive",
	"cluster-node-timeout", "lazyfree-lazy-expire"}

// examine asks servers at the same time, and adds what the checks find.
func (r *report) examine(ctx context.Context, servers []*redisServer) {
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() { s.ask(ctx) })
	}
	wg.Wait()
	for _, s := range servers {
		seen := s.examined[s.name]
		if !seen {
			r.add("connection", s.name, connection(s))
		}
		if s.err != nil {
			continue
		}
		s.examined[s.name] = true
		r.add("rights", s.name, rights(ctx, s))
		if s.store {
			r.add("expiry", s.name, lazyExpiry(s))
		}
		for _, check := range redisChecks {
			if !seen {
				r.add(check.name, s.name, check.run(ctx, s))
			}
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
	s.info, s.config = map[string]string{}, map[string]string{}
	text, _ := s.client.Info(ctx).Result()
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			s.info[name] = value
		}
	}
	for _, name := range settings {
		found, _ := s.client.ConfigGet(ctx, name).Result()
		for name, value := range found {
			s.config[name] = value
		}
	}
}

// number returns a number of INFO or of a setting, or 0.
func number(of map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(of[name], 10, 64)
	return n
}

func connection(s *redisServer) Finding {
	if s.err == nil {
		secure := "without TLS"
		if s.client.Options().TLSConfig != nil {
			secure = "with TLS"
		}
		return ok("answers in %v, %s", s.took.Round(10*time.Microsecond), secure)
	}
	do := "Start the server, or correct the host and the port of the URL. Check the firewall."
	if s.client.Options().TLSConfig != nil {
		do += " Use redis:// if the server has no TLS."
	}
	for text, advice := range map[string]string{
		"WRONGPASS":             "Correct the user and the password in the URL.",
		"NOAUTH":                "Add user:password@ to the URL.",
		"NOPERM":                "Grant the user the documented rights, +time among them.",
		"tls:":                  "Use rediss:// for a server with TLS, and redis:// for one without.",
		"x509:":                 "Give the URL tls_ca, the file of the authority, or correct the certificate.",
		"EOF":                   "A server with TLS needs rediss://. Otherwise look at the log of the server.",
		"LOADING":               "Wait until the server has read its file.",
		"max number of clients": "Raise maxclients, or find the clients with CLIENT LIST.",
	} {
		if strings.Contains(s.err.Error(), text) {
			do = advice
		}
	}
	return result(Problem, s.err.Error(), "The server serves no lock and no session.", do)
}

func readable(_ context.Context, s *redisServer) Finding {
	missing := ""
	if len(s.info) == 0 {
		missing = "INFO, "
	}
	if len(s.config) == 0 {
		missing += "CONFIG GET, "
	}
	if missing == "" {
		return ok("can be read")
	}
	return result(Note, "Redis refuses "+strings.TrimSuffix(missing, ", "),
		"Checks of the settings behind these commands are left out.",
		"Run lockctl doctor as an operator, or look at the console of the provider.")
}

func version(_ context.Context, s *redisServer) Finding {
	v := s.info["redis_version"]
	var major, minor int
	_, _ = fmt.Sscanf(v, "%d.%d", &major, &minor)
	switch {
	case v == "":
		return Finding{}
	case major < 6 || major == 6 && minor < 2:
		return result(Problem, "Redis "+v, "It lacks GETEX, and versions before 6.0 lack ACL users. Lock operations fail.",
			"Upgrade to Redis 6.2 or newer.")
	}
	return ok("Redis %s", v)
}

func role(_ context.Context, s *redisServer) Finding {
	master := s.info["master_host"] + ":" + s.info["master_port"]
	switch {
	case s.info["role"] == "":
		return Finding{}
	case s.info["role"] == "master":
		return ok("master")
	case s.topology == quorum:
		return result(Problem, "a replica of "+master, "It refuses every lock operation (READONLY). A quorum needs independent nodes.",
			"REPLICAOF NO ONE")
	case s.topology == alone:
		return result(Problem, "a replica of "+master, "It refuses every lock operation (READONLY).",
			"Use the address of the master, or a redis+sentinel:// URL.")
	case s.info["master_link_status"] != "up":
		return result(Warning, "a replica of "+master+" without a connection to it",
			"A failover to this replica loses locks and exchanges.", "Look at the log of the replica and at the network.")
	}
	return ok("replica of %s", master)
}

func eviction(_ context.Context, s *redisServer) Finding {
	policy, limit := s.info["maxmemory_policy"], number(s.info, "maxmemory")
	const means = "Redis may drop a held lock, its last token, or a session. All of them may expire, so each policy concerns them."
	const do = "CONFIG SET maxmemory-policy noeviction"
	switch {
	case policy == "" || policy == "noeviction":
		return okIf(policy != "", "noeviction")
	case limit == 0:
		return result(Warning, policy+", without maxmemory", "With maxmemory: "+means, do)
	}
	return result(Problem, fmt.Sprintf("%s, with maxmemory %s", policy, size(limit)), means, do)
}

func okIf(known bool, found string) Finding {
	if !known {
		return Finding{}
	}
	return ok("%s", found)
}

func size(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/(1<<20)) }

func memory(_ context.Context, s *redisServer) Finding {
	used, limit, of := number(s.info, "used_memory"), number(s.info, "maxmemory"), "maxmemory"
	if limit == 0 {
		limit, of = number(s.info, "total_system_memory"), "the memory of the machine"
	}
	found := fmt.Sprintf("%s used of %s, %s", size(used), size(limit), of)
	const do = "Raise maxmemory, or set Retention.IdleTTL and Retention.MaxBytes of the store."
	switch {
	case limit == 0:
		return Finding{}
	case used >= limit:
		return result(Problem, found, "Acquires and Saves fail (OOM). Held leases are still renewed and released.", do)
	case used > limit/10*8:
		return result(Warning, found, "Soon acquires and Saves fail (OOM).", do)
	}
	return ok("%s", found)
}

func persistence(_ context.Context, s *redisServer) Finding {
	aof, fsync := s.info["aof_enabled"], s.config["appendfsync"]
	switch {
	case aof == "":
		return Finding{}
	case s.info["rdb_last_bgsave_status"] == "err" || s.info["aof_last_write_status"] == "err":
		return result(Problem, "the last write to the disk has failed", "Redis refuses writes (MISCONF).",
			"Look at the disk and at the log of the server.")
	case aof == "0" && s.topology == quorum:
		return ok("no append-only file, which RestartDelay makes up for")
	case aof == "0":
		return result(Warning, "no append-only file",
			"A restart loses locks, tokens and exchanges since the last snapshot. A lock may then have two holders for a TTL.",
			"CONFIG SET appendonly yes, and appendonly yes in redis.conf")
	case fsync == "no":
		return result(Warning, "appendonly yes, appendfsync no",
			"A crash of the machine loses what its system has not written yet: about 30 s.", "CONFIG SET appendfsync everysec")
	}
	return okIf(true, strings.TrimSuffix("appendonly yes, appendfsync "+fsync, ", appendfsync "))
}

func replicas(_ context.Context, s *redisServer) Finding {
	has, need := number(s.info, "connected_slaves"), number(s.config, "min-replicas-to-write")
	_, known := s.config["min-replicas-to-write"]
	good := has
	if text := s.info["min_slaves_good_slaves"]; text != "" {
		good = number(s.info, "min_slaves_good_slaves")
	}
	found := fmt.Sprintf("%d replicas, min-replicas-to-write %d", has, need)
	switch {
	case s.info["role"] != "master" || !known && has > 0:
		return Finding{}
	case s.topology == quorum && has > 0:
		return result(Warning, found, "A promoted replica of a node may lack locks, and no program notices.",
			"Run the nodes of a quorum without replicas.")
	case need > good:
		return result(Problem, fmt.Sprintf("%s, and %d of them in time", found, good),
			"The master refuses every write (NOREPLICAS).", "Bring the replicas back, or lower min-replicas-to-write.")
	case has == 0 && (s.topology == sentinel || s.topology == cluster):
		return result(Warning, found, "If this master dies, no server takes over its locks.", "Add a replica.")
	case has > 1 && need == 0:
		return result(Warning, found,
			"A master that is cut off goes on without its replicas. A failover then loses all that it has granted and stored since.",
			"CONFIG SET min-replicas-to-write 1, and CONFIG SET min-replicas-max-lag 2")
	case has == 1:
		return result(Note, found, "With one replica, min-replicas-to-write 1 makes a restart of the replica an outage. "+
			"With 0, a cut-off master loses what it has granted and stored.", "Run two replicas, with min-replicas-to-write 1.")
	}
	return ok("%s", found)
}

// slow is how far clocks may differ.
const slow = time.Second

func clock(_ context.Context, s *redisServer) Finding { return clockFinding(s.offset, s.took) }

func clockFinding(offset, took time.Duration) Finding {
	if offset.Abs() > slow+took {
		return result(Warning, fmt.Sprintf("%v from the clock here", offset.Round(time.Millisecond)),
			"Tokens follow the clock of the server. A step of that clock ends locks early or late.",
			"Run NTP on both machines, and let it slew the clocks.")
	}
	return ok("%v from the clock here", offset.Round(time.Millisecond))
}

func clients(_ context.Context, s *redisServer) Finding {
	has, limit := number(s.info, "connected_clients"), number(s.config, "maxclients")
	if limit == 0 {
		limit = number(s.info, "maxclients")
	}
	found := fmt.Sprintf("%d of %d clients", has, limit)
	switch {
	case limit == 0:
		return Finding{}
	case has > limit/10*9:
		return result(Warning, found, "Soon Redis refuses connections, those of renewals among them.",
			"Raise maxclients, or find the clients with CLIENT LIST.")
	}
	return ok("%s", found)
}

// idle compares with the time between two renewals, a third of the TTL.
func idle(_ context.Context, s *redisServer) Finding {
	text, known := s.config["timeout"]
	timeout := time.Duration(number(s.config, "timeout")) * time.Second
	switch {
	case !known:
		return Finding{}
	case timeout > 0 && timeout <= s.ttl/3:
		return result(Warning, "timeout "+text,
			fmt.Sprintf("Redis closes idle connections between two renewals, which are up to %v apart. Each renewal connects anew.", s.ttl/3),
			"CONFIG SET timeout 0")
	case s.config["tcp-keepalive"] == "0":
		return result(Warning, "tcp-keepalive 0", "Redis keeps the connections of dead machines, up to maxclients.",
			"CONFIG SET tcp-keepalive 300")
	}
	return ok("timeout %s, tcp-keepalive %s", text, s.config["tcp-keepalive"])
}

func nodeTimeout(_ context.Context, s *redisServer) Finding {
	if s.topology != cluster || s.config["cluster-node-timeout"] == "" {
		return Finding{}
	}
	return failover("cluster-node-timeout", number(s.config, "cluster-node-timeout"), s.ttl)
}

// failover compares the time before a failover with two thirds of the TTL: a lease lasts at least so long
// after its last renewal.
func failover(setting string, ms int64, ttl time.Duration) Finding {
	found := fmt.Sprintf("%s %d, TTL %v", setting, ms, ttl)
	if time.Duration(ms)*time.Millisecond >= ttl*2/3 {
		return result(Warning, found, "A failover takes longer than two thirds of the TTL, so leases end during it.",
			fmt.Sprintf("Set %s to 5000, or raise the TTL.", setting))
	}
	return ok("%s", found)
}

func lazyExpiry(s *redisServer) Finding {
	if s.config["lazyfree-lazy-expire"] == "no" {
		return result(Note, "lazyfree-lazy-expire no", "Redis blocks while it frees a long session that has expired.",
			"CONFIG SET lazyfree-lazy-expire yes")
	}
	return Finding{}
}
