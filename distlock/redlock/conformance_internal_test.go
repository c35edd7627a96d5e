package redlock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// It disturbs a majority of the nodes. The loss of a minority disturbs no operation: the fault matrix
// shows that. The nodes have just started, so the restart delay is off. The rights in doc.go are
// enough for the whole contract of a driver.
func TestConformance_redlock3(t *testing.T) {
	rights, namespaces := servers.DocumentedRights(t, "doc.go"), []string{"drivertest", "a", strings.Repeat("n", 128)}
	quorum := servers.StartQuorum(t, 3, servers.UserArgs("locker", namespaces, slices.Concat(rights.Needed, rights.Notified)...)...)
	nodes := quorum.Nodes()
	majority := nodes[:quorum.Size()]
	proxies, addrs := make([]*faultnet.Proxy, len(nodes)), make([]string, len(nodes))
	for i, node := range nodes {
		proxies[i] = faultnet.New(t, node.Addr())
		addrs[i] = proxies[i].Addr()
	}
	everywhere := func(command ...string) {
		for _, node := range nodes {
			do(t, node, command...)
		}
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			if refused := servers.RefusedToUsers(t, node); refused != "" {
				t.Errorf("the server has refused %s", refused)
			}
		}
	})
	options := redis.Options{Username: "locker", Password: servers.UserPassword, MaxRetries: -1, ContextTimeoutEnabled: true}
	drivertest.Run(t, drivertest.Service{
		New:     func(tb testing.TB) driver.Driver { return openQuorum(tb, addrs, options) },
		Restart: nodes[0].Restart,
		CutConnections: func() {
			for _, proxy := range proxies {
				proxy.Refuse()
				proxy.Heal()
			}
		},
		Hang: func() func() {
			for _, node := range majority {
				node.Pause()
			}
			return func() {
				for _, node := range majority {
					node.Resume()
				}
			}
		},
		// On all nodes: a Release that only a majority refuses ends the grants of the others.
		DenyRight: func() func() {
			everywhere("ACL", "SETUSER", "locker", "-eval", "-evalsha")
			return func() {
				everywhere("ACL", "SETUSER", "locker", "+eval", "+evalsha")
				everywhere("ACL", "LOG", "RESET")
			}
		},
		PutForeign: func(name driver.Name) func() bool {
			for _, node := range majority {
				do(t, node, "SET", lockKey(name), "theirs")
			}
			return func() bool {
				return !slices.ContainsFunc(majority, func(node *servers.Redis) bool {
					return do(t, node, "GET", lockKey(name)) != "theirs"
				})
			}
		},
	})
}

// openQuorum makes a driver that the test closes. Its nodes never lose data.
func openQuorum(tb testing.TB, addrs []string, options redis.Options) driver.Driver {
	clients := make([]redis.UniversalClient, len(addrs))
	for i, addr := range addrs {
		options := options
		options.Addr = addr
		client := redis.NewClient(&options)
		tb.Cleanup(func() { _ = client.Close() })
		clients[i] = client
	}
	d, err := NewDriver(clients, &Options{RestartDelay: -1})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return asks{d}
}

// asks asks again after a Busy that shows no token, as the Locker does: a node was slow, and
// another one had not released the grant before.
type asks struct{ driver.Driver }

func (a asks) Unwrap() driver.Driver { return a.Driver }

func (a asks) Acquire(ctx context.Context, req driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		reply, err = a.Driver.Acquire(ctx, req)
		if err != nil || reply.Outcome != driver.Busy || reply.State.Fence > 0 {
			break
		}
	}
	return reply, err
}
