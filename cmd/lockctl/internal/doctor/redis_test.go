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
		setting, value, end string
		user                string
		level               Level
		check, text         string
	}{
		{"maxmemory-policy", "allkeys-lru", "noeviction", "", Problem, "settings", "CONFIG SET maxmemory-policy noeviction"},
		{"lazyfree-lazy-expire", "no", "yes", "", Note, "settings", "CONFIG SET lazyfree-lazy-expire yes"},
		{"appendonly", "no", "yes", "", Warning, "persistence", "appendonly yes"},
		{"appendfsync", "no", "everysec", "", Warning, "persistence", "everysec"},
		{"requirepass", "", "", "agent:wrong@", Problem, "connection", "WRONGPASS"},
		// The last one: the server demands the password from now on.
		{"requirepass", "p", "", "", Problem, "connection", "NOAUTH"},
	} {
		do(t, r, "CONFIG", "SET", c.setting, c.value)
		findings := examine(t, "redis://"+c.user+r.Addr(), "")
		shows(t, findings, c.level, c.check, c.text)
		for _, f := range findings {
			if (f.Level == Warning || f.Level == Problem) && f.Check != c.check && c.check != "connection" {
				t.Errorf("a finding beside %s %s: %+v", c.setting, c.value, f)
			}
		}
		if c.value != "p" {
			do(t, r, "CONFIG", "SET", c.setting, c.end)
		}
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
	without := func(lacks func(right string) bool) {
		servers.SetUser(t, r, "agent", []string{"distlock", "session"}, slices.DeleteFunc(slices.Clone(all), lacks)...)
	}
	without(func(string) bool { return false })
	finds(t, address, address)
	for right, want := range map[string]Level{
		"+getex": Problem, "+zadd": Problem, "+hset": Problem, "+setrange": Problem, "+evalsha": Problem,
		"+publish": Warning, "+subscribe": Warning, "&<namespace>:*": Warning, "~<namespace>:*": Problem,
		"+xadd": Problem, "+hrandfield": Problem, "+xinfo|stream": Problem,
	} {
		without(func(each string) bool { return each == right || right[0] == '&' && each[0] == '&' })
		shows(t, examine(t, address, address), want, "rights", strings.ReplaceAll(right, "<namespace>", "distlock"))
	}
	// Managed Redis refuses CONFIG GET: that is a note, and the rest goes on.
	without(func(each string) bool { return each == "+config|get" || each == "+info" })
	shows(t, finds(t, address, ""), Note, "settings", "INFO or CONFIG GET")
	// An operator who may look is advised no right to write.
	converse(t, r.URL(), r.URL())
	all = []string{"~<namespace>:*"}
	for command := range strings.FieldsSeq("evalsha eval get pttl time scan zrange zcard hget xrange xrevrange info config|get") {
		all = append(all, "+"+command)
	}
	without(func(string) bool { return false })
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
	redis, postgres := startRedis(t).URL(), migrated.Database(t, servers.SharedPostgres(t)).URL()
	for url, mistyped := range map[string]string{redis: redis + "?namespace=mistyped", postgres: postgres + "&namespace=mistyped"} {
		converse(t, url, url)
		shows(t, examine(t, url, mistyped), Note, "namespace", `the namespace "mistyped" of the store has no session`)
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
