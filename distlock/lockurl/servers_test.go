package lockurl_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// addUser adds a user to servers of Redis.
func addUser(nodes []*servers.Redis, user, password string, rights ...string) {
	for _, node := range nodes {
		must(node.Do(append([]string{"ACL", "SETUSER", user, "on", ">" + password}, rights...)...))
	}
}

// connections counts those of a user.
func connections(user string, nodes ...*servers.Redis) (n int) {
	for _, node := range nodes {
		n += strings.Count(must(node.Do("CLIENT", "LIST")), "user="+user)
	}
	return n
}

// User and password of the nodes are not those of the Sentinels.
func TestOpen_sentinel(t *testing.T) {
	t.Parallel()
	s := servers.SharedTopology("sentinel")
	addUser(s.Nodes(), "agent", "p@ss", "~*", "+@all")
	addUser(s.Sentinels(), "watcher", "s&p", "&*", "+@all")
	checkHandoff(t, strings.Replace(s.URL(), "://", "://agent:p%40ss@", 1)+"&sentinel_username=watcher&sentinel_password=s%26p")
	if connections("agent", s.Sentinel.Master()) == 0 || connections("watcher", s.Sentinels()...) == 0 {
		t.Error("the master or the Sentinels have no connection of their user")
	}
}

// With the default of Sentinel, 30 s, a failover outlasts a lease of 30 s. No Sentinel, no warning.
func TestOpen_sentinel_slowFailover_warns(t *testing.T) {
	t.Parallel()
	const url = "redis+sentinel://127.0.0.1:1,%s?master_name=belugalock"
	watched := fmt.Sprintf(url, servers.StartSentinelFor(t, servers.StartRedis(t).Addr()).Addr())
	checkWarnings(t, "down-after-milliseconds", map[string]int{
		watched: 1, watched + "&ttl=46s": 1, watched + "&ttl=47s": 0,
		fmt.Sprintf(url, "127.0.0.1:2"): 0,
	})
}

func TestOpen_cluster(t *testing.T) {
	t.Parallel()
	c := servers.SharedTopology("cluster").Cluster
	addUser(c.Nodes(), "agent", "p@ss", "~*", "+@all")
	locker := open(t, strings.Replace(c.URL(), "://", "://agent:p%40ss@", 1))
	masters := map[*servers.Redis]bool{}
	for i := range 20 { // enough to reach all masters
		key := fmt.Sprint("key ", i)
		masters[c.MasterOf("distlock:{"+key+"}:lock")] = true
		if err := locker.Do(t.Context(), key, func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for master := range masters {
		if len(masters) != 3 || connections("agent", master) == 0 {
			t.Errorf("one of %d masters has no connection of agent", len(masters))
		}
	}
}

// The socket is that of the parameters: its file, its user and its database.
func TestOpen_unixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis @1.sock")
	servers.StartRedis(t, "--requirepass", "p@ss/word", "--unixsocket", socket)
	url := "unix://default:p%40ss%2Fword@" + strings.NewReplacer(" ", "%20", "@", "%40").Replace(socket) + "?db=2"
	checkHandoff(t, url)
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Password: "p@ss/word", DB: 2})
	defer admin.Close()
	lease := must(open(t, url).Acquire(t.Context(), "key"))
	if keys := must(admin.Keys(t.Context(), "distlock:{key}:*").Result()); len(keys) == 0 {
		t.Error("database 2 has no keys")
	}
	must(0, lease.Release(t.Context()))
}

func pool(t *testing.T, db *servers.PostgresDatabase) *pgxpool.Pool {
	t.Helper()
	pool := must(pgxpool.New(t.Context(), db.URL()))
	t.Cleanup(pool.Close)
	return pool
}

// The user of the URL may lock in the schema of the URL alone.
func TestOpen_postgres(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	must(0, pglock.Migrate(t.Context(), pool(t, db), &pglock.Options{Schema: "locks"}))
	const password = "p@ss/wo+rd"
	user := "agent_" + db.Name()
	must(db.Do("CREATE ROLE " + user + " LOGIN PASSWORD '" + password + "'; GRANT USAGE ON SCHEMA locks TO " + user +
		"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA locks TO " + user))
	t.Cleanup(func() { _, _ = db.Do("DROP OWNED BY " + user + "; DROP ROLE " + user) })
	host := must(url.Parse(db.URL())).Host
	for _, scheme := range []string{"postgres", "postgresql"} {
		rawURL := scheme + "://" + user + ":" + url.QueryEscape(password) + "@" + host + "/" + db.Name() +
			"?ttl=5s&schema=locks&application_name=a+b%20c&namespace=chat"
		checkHandoff(t, rawURL)
		if l := open(t, rawURL); fencing.Backend(l) != "postgres" || fencing.Options(l).Namespace != "chat" {
			t.Errorf("backend %q, options %+v", fencing.Backend(l), fencing.Options(l))
		}
		// ⚑ PostgreSQL reads a plus sign as a plus sign.
		if has := must(db.Do("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'a+b c'")); has != "t" {
			t.Error("no connection has the name of the URL")
		}
	}
}
