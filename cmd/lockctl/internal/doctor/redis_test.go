package doctor

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// durable are the settings of a healthy node.
var durable = []string{"--appendonly", "yes", "--lazyfree-lazy-expire", "yes", "--stream-node-max-bytes", "1024"}

func startRedis(t *testing.T) *servers.Redis {
	return servers.StartRedis(t, durable...)
}

func TestExamine_healthyRedis(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	converse(t, r.URL(), r.URL())
	before, err := r.Do("KEYS", "*")
	must(t, err)
	findings := finds(t, r.URL(), r.URL())
	if i := slices.IndexFunc(findings, func(f Finding) bool { return f.Level != OK }); i >= 0 {
		t.Errorf("%+v", findings[i])
	}
	shows(t, findings, OK, "namespace", "the locks of 1 sessions")
	if after, err := r.Do("KEYS", "*"); err != nil || after != before {
		t.Errorf("the keys were %q and are %q, %v", before, after, err)
	}
}

func TestExamine_plantedInRedis(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	for _, c := range []struct {
		name       string
		plant, end []string
		user       string
		want, text string
	}{
		{"eviction", []string{"maxmemory-policy", "allkeys-lru"}, []string{"maxmemory-policy", "noeviction"},
			"", "problem settings", "CONFIG SET maxmemory-policy noeviction"},
		{"expiry", []string{"lazyfree-lazy-expire", "no"}, []string{"lazyfree-lazy-expire", "yes"},
			"", "note settings", "CONFIG SET lazyfree-lazy-expire yes"},
		{"no file", []string{"appendonly", "no"}, []string{"appendonly", "yes"}, "", "warning persistence", "appendonly yes"},
		{"no fsync", []string{"appendfsync", "no"}, []string{"appendfsync", "everysec"}, "", "warning persistence", "everysec"},
		{"password", nil, nil, "agent:wrong@", "problem connection", "WRONGPASS"},
		{"password, not given", []string{"requirepass", "p"}, nil, "", "problem connection", "NOAUTH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := 0; i < len(c.plant); i += 2 {
				do(t, r, "CONFIG", "SET", c.plant[i], c.plant[i+1])
			}
			findings := examine(t, "redis://"+c.user+r.Addr(), "")
			level, check, _ := strings.Cut(c.want, " ")
			shows(t, findings, Level(level), check, c.text)
			for _, f := range findings {
				if (f.Level == Warning || f.Level == Problem) && f.Check != check && check != "connection" {
					t.Errorf("a finding beside it: %+v", f)
				}
			}
			if c.name == "password, not given" {
				return // the last one: the server demands a password from now on
			}
			for i := 0; i < len(c.end); i += 2 {
				do(t, r, "CONFIG", "SET", c.end[i], c.end[i+1])
			}
		})
	}
}

// Each documented right is found if it is missing, and a user with all of them lacks none.
func TestExamine_missingRight(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	address := "redis://agent:" + servers.UserPassword + "@" + r.Addr()
	lock := servers.DocumentedRights(t, "../../../../distlock/redislock/doc.go")
	store := servers.DocumentedRights(t, "../../../../lockedmemory/sessionstore/redisstore/doc.go")
	all := slices.Concat([]string{"resetchannels"}, lock.Needed, lock.Notified, lock.Lists, store.Needed, []string{"+info", "+config|get", "&distlock:*"})
	namespaces := []string{"distlock", "session"}
	servers.SetUser(t, r, "agent", namespaces, all...)
	finds(t, address, address)
	for right, want := range map[string]string{
		"+getex": "problem", "+zadd": "problem", "+hset": "problem", "+setrange": "problem", "+evalsha": "problem",
		"+publish": "warning", "+subscribe": "warning", "&<namespace>:*": "warning", "~<namespace>:*": "problem",
		"+xadd": "problem", "+hrandfield": "problem", "+xinfo|stream": "problem",
	} {
		servers.SetUser(t, r, "agent", namespaces,
			slices.DeleteFunc(slices.Clone(all), func(each string) bool { return each == right || right[0] == '&' && each[0] == '&' })...)
		findings := examine(t, address, address)
		shows(t, findings, Level(want), "rights", strings.ReplaceAll(right, "<namespace>", "distlock"))
	}
	// Managed Redis refuses CONFIG GET: that is a note, and the rest goes on.
	servers.SetUser(t, r, "agent", namespaces, slices.DeleteFunc(slices.Clone(all), func(each string) bool {
		return each == "+config|get" || each == "+info"
	})...)
	shows(t, finds(t, address, ""), Note, "settings", "INFO or CONFIG GET")
}

// An operator who may look is advised no right to write.
func TestExamine_reader(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	address := "redis://agent:" + servers.UserPassword + "@" + r.Addr()
	converse(t, r.URL(), r.URL())
	all := []string{"~<namespace>:*"}
	for command := range strings.FieldsSeq("evalsha eval get pttl time scan zrange zcard hget xrange xrevrange info config|get") {
		all = append(all, "+"+command)
	}
	servers.SetUser(t, r, "agent", []string{"distlock", "session"}, all...)
	shows(t, finds(t, address, address), Note, "rights", "may not write")
}

// Since Redis 7.2, the refusal of a command has the name of the user.
func TestRight_missing(t *testing.T) {
	zadd := right{try: "ZADD KEY XX 1 m"}
	for refusal, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'zadd' command":                   "+zadd",
		"NOPERM User monkey has no permissions to run the 'zadd' command":                 "+zadd",
		"NOPERM this user has no permissions to access one of the keys used as arguments": "~chat:*",
		"NOPERM No permissions to access a key":                                           "~chat:*",
		"NOPERM No permissions to access a channel":                                       "&chat:*",
	} {
		if got := zadd.missing(refusal, "chat"); got != want {
			t.Errorf("%s: %s, want %s", refusal, got, want)
		}
	}
}

// endAfter is a hook that ends a context after PTTL, which succeeds.
type endAfter struct{ end context.CancelFunc }

func (endAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (endAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h endAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "pttl" {
			h.end()
		}
		return err
	}
}

func TestRights_endOfTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &redisServer{client: redis.NewClient(&redis.Options{Addr: startRedis(t).Addr()})}
	defer s.client.Close()
	s.client.AddHook(endAfter{cancel})
	if got := rights(ctx, s); got.Level != Warning || got.Found != context.Canceled.Error() {
		t.Errorf("%+v", got)
	}
}

func TestExamine_replicaAsNode(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	do(t, r, "REPLICAOF", "127.0.0.1", "1")
	shows(t, examine(t, r.URL(), ""), Problem, "role", "a replica of 127.0.0.1:1")
}

func TestExamine_noServer(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	finds(t, "redis://"+addr, "", "problem connection", "problem locks")
	finds(t, "redis+sentinel://"+addr+"?master_name=m", "", "problem sentinel", "problem locks")
	finds(t, "postgres://"+addr+"/db?sslmode=disable", "", "problem connection", "problem locks")
}

func freeAddr(t *testing.T) string {
	l, err := servers.Listen()
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// Two programs write one session, under locks of two namespaces.
func TestExamine_namespaceMismatch(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	converse(t, r.URL()+"?namespace=mine", r.URL())
	time.Sleep(time.Duration(lockdriver.FenceBlock) * time.Microsecond) // later than the reserved tokens
	converse(t, r.URL()+"?namespace=theirs", r.URL())
	for namespace, want := range map[string][]string{"theirs": nil, "mine": {"problem namespace"}, "third": {"problem namespace"}} {
		finds(t, r.URL()+"?namespace="+url.QueryEscape(namespace), r.URL(), want...)
	}
}

func TestExamine_storeNamespaceWithoutSessions(t *testing.T) {
	t.Parallel()
	for _, url := range []string{startRedis(t).URL(), migrated.Database(t, servers.SharedPostgres(t)).URL()} {
		at := func(namespace string) string {
			if strings.Contains(url, "?") {
				return url + "&namespace=" + namespace
			}
			return url + "?namespace=" + namespace
		}
		converse(t, url, url)
		shows(t, examine(t, url, at("mistyped")), Note, "namespace", `the namespace "mistyped" of the store has no session`)
	}
}

// converse saves an exchange under a lock.
func converse(t *testing.T, lockURL, storeURL string) {
	t.Helper()
	key := lockedmemory.FixedKey("a } session")
	store, err := sessionstore.New(sessionsOf(t, storeURL), key, sessionstore.JSON[string]{}, nil)
	must(t, err)
	memory, err := lockedmemory.New(store, open(t, lockURL), key, nil)
	must(t, err)
	must(t, memory.Save(t.Context(), "q", "a"))
}
