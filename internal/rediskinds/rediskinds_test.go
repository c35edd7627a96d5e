package rediskinds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// reply is an error that a server has answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// clients are one for each arrangement of servers. They connect to nothing.
func clients(t *testing.T) (node, follower *redis.Client, cluster *redis.ClusterClient) {
	node = redis.NewClient(&redis.Options{})
	follower = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	cluster = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return nil, io.EOF
	}})
	t.Cleanup(func() { _, _, _ = node.Close(), follower.Close(), cluster.Close() })
	return node, follower, cluster
}

// The kind of an error decides how a Locker continues. Before Redis 7.0 errors in scripts are
// quoted. Since Redis 7.2 a missing right in a script has another text.
func TestExplain_kinds(t *testing.T) {
	node, _, cluster := clients(t)
	const quoting = "ERR Error running script (call to f_0f): @user_script:12: "
	for _, c := range []struct {
		kind   error
		advice string // "": none
		errs   []error
	}{
		{driver.ErrForeign, "choose another Namespace", []error{
			reply("WRONGTYPE Operation against a key holding the wrong kind of value"),
			reply(quoting + "WRONGTYPE Operation against a key holding the wrong kind of value"),
			reply("FOREIGN the lock has another type"),
		}},
		{driver.ErrRefused, "clock", []error{reply("FENCE the fencing token would pass 2^53")}},
		{driver.ErrFloor, "a year ahead", []error{reply("FLOOR the floor of the fencing token is more than a year ahead of this server's clock")}},
		{driver.ErrRights, "user and password", []error{
			reply("NOAUTH Authentication required."), reply("WRONGPASS invalid username-password pair or user is disabled."),
		}},
		{driver.ErrRights, "ACL", []error{
			reply("NOPERM User app has no permissions to run the 'evalsha' command"),
			reply(quoting + "The user executing the script can't run this command or subcommand"),
			reply("ERR ACL failure in script: User app has no permissions to run the 'get' command script: 0f, on @user_script:22."),
		}},
		{errors.Join(driver.ErrRefused, driver.ErrNotDone, driver.ErrReplayed), "maxmemory", []error{
			redisconn.WithEarlierCopy(true, reply("OOM command not allowed when used memory > 'maxmemory'.")),
		}},
		{errors.Join(driver.ErrRefused, driver.ErrNotDone), "maxmemory", []error{
			reply("OOM command not allowed when used memory > 'maxmemory'."),
			reply(quoting + "-OOM command not allowed when used memory > 'maxmemory'."),
		}},
		{driver.ErrRefused, "NewClusterClient", []error{reply("MOVED 3999 127.0.0.1:6381"), reply("ASK 3999 127.0.0.1:6381")}},
		{driver.ErrRefused, "fewer databases", []error{reply("ERR DB index is out of range")}},
		{driver.ErrRefused, "redis.NewClient", []error{reply("ERR This instance has cluster support disabled")}},
		{driver.ErrRefused, "NewClusterClient", []error{reply("ERR SELECT is not allowed in cluster mode")}},
		{driver.ErrRefused, "addresses of the Sentinels", []error{reply("ERR unknown command 'sentinel', with args beginning with: 'x' ")}},
		{driver.ErrRefused, "redis+sentinel://", []error{reply("ERR unknown command 'evalsha', with args beginning with: 'x' ")}},
		{driver.ErrRefused, "master_name", []error{noMaster(redis.Nil, redis.Nil)}},
		{nil, "start Redis", []error{noMaster(redis.Nil, refusedDial)}},
		{nil, "perhaps HTTP", []error{errors.New(`redis: can't parse "HTTP/1.1 400 Bad Request"`), noMaster(errors.New(`redis: can't parse "HTTP"`))}},
		{driver.ErrTemporary, "master", []error{
			reply("READONLY You can't write against a read only replica."),
			reply(quoting + "-READONLY You can't write against a read only replica."),
		}},
		{driver.ErrTemporary, "", []error{
			reply("LOADING Redis is loading the dataset in memory"),
			reply("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
			reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
			reply("NOREPLICAS Not enough good replicas to write."),
			reply("TRYAGAIN Multiple keys request during rehashing of slot"),
			reply("CLUSTERDOWN The cluster is down"),
			reply("ERR max number of clients reached"),
		}},
		{driver.ErrRefused, "disk", []error{reply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.")}},
		{driver.ErrRefused, "rename-command", []error{
			reply("ERR unknown command 'EVALSHA'"), reply("ERR unsupported command 'evalsha'"),
			reply("ERR Unknown Redis command called from script script: 0f, on @user_script:12."),
		}},
		{driver.ErrRefused, "", []error{
			redisconn.ErrUnknownClient,
			reply("ERR Protocol error: invalid bulk length"), reply("NOPROTO unsupported protocol version"),
			reply("CROSSSLOT Keys in request don't hash to the same slot"), reply("DENIED Redis is running in protected mode"),
		}},
		{nil, "start Redis", []error{refusedDial}},
		{nil, "", []error{
			&net.OpError{Op: "read", Err: io.EOF}, context.DeadlineExceeded, errors.New("OOM of another program"),
			reply("ERR Connection timed out"), reply("upstream failure"), redis.Nil, // of proxies
		}},
	} {
		for _, err := range c.errs {
			got := Explain(node, "redislock", err)
			if !errors.Is(got, err) || c.advice == "" && strings.HasSuffix(got.Error(), ")") || !strings.Contains(got.Error(), c.advice) {
				t.Errorf("%v: %v, want %q", err, got, c.advice)
			}
			for _, kind := range []error{driver.ErrForeign, driver.ErrRefused, driver.ErrRights, driver.ErrFloor, driver.ErrTemporary, driver.ErrNotDone, driver.ErrReplayed} {
				if errors.Is(got, kind) != errors.Is(c.kind, kind) {
					t.Errorf("%v: is it %v? %t", err, kind, errors.Is(got, kind))
				}
			}
		}
	}
	for _, err := range []error{reply("MOVED 3999 127.0.0.1:6381"), reply("ASK 3999 127.0.0.1:6381")} {
		if got := Explain(cluster, "redislock", err); !errors.Is(got, driver.ErrTemporary) || strings.Contains(got.Error(), "NewClusterClient") {
			t.Errorf("in a Cluster: %v", got)
		}
	}
}

var refusedDial = &net.OpError{Op: "dial", Net: "tcp", Err: io.EOF}

// noMaster is the error of go-redis with the answers of Sentinels.
func noMaster(answers ...error) error { return fmt.Errorf("%s%w", unnamed, errors.Join(answers...)) }

// The answers of Sentinels are one line, without what go-redis quotes.
func TestExplain_answersOfSentinels(t *testing.T) {
	_, follower, _ := clients(t)
	got := Explain(follower, "redislock", noMaster(redis.Nil, redis.Nil, refusedDial, errors.New(`redis: can't parse "secret"`)))
	want := "redislock: no Sentinel names the master: its name is not known; dial tcp: EOF; redis: can't parse ("
	if !strings.HasPrefix(got.Error(), want) {
		t.Errorf("%v, want %s", got, want)
	}
}

// A node that refuses connections is an outage. One of several nodes may be in a failover.
func TestExplain_refusedDial_severalNodes(t *testing.T) {
	node, follower, cluster := clients(t)
	for client, temporary := range map[redis.UniversalClient]bool{node: false, follower: true, cluster: true} {
		if err := Explain(client, "redislock", refusedDial); errors.Is(err, driver.ErrTemporary) != temporary || errors.Is(err, driver.ErrRefused) {
			t.Errorf("%T: %v", client, err)
		}
	}
}
