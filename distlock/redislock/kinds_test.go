package redislock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// call makes one call of an owner for a lock of the namespace n.
func call(ctx context.Context, d driver.Driver, what, key, who string) error {
	req := owner(who)
	req.Name.Key = key
	release := driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}
	extend := driver.ExtendRequest{Name: req.Name, Owner: req.Owner, TTL: time.Minute}
	var err error
	switch what {
	case "wait": // the full script alone
		req.Alive, req.Seq = time.Second, 2
		fallthrough
	case "acquire":
		_, err = d.Acquire(ctx, req)
	case "leave":
		release.Leave = true
		_, err = d.Release(ctx, release)
	case "cancel":
		release.Tombstone = time.Minute
		fallthrough
	case "release":
		_, err = d.Release(ctx, release)
	case "extend": // in a pipeline
		err = d.Extend(ctx, []driver.ExtendRequest{extend, extend})[1].Err
	case "raise":
		_, err = d.Raise(ctx, driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: time.Now().Add(time.Hour).UnixMicro()})
	case "ask":
		asker, _ := driver.As[driver.Asker](d)
		_, err = asker.Ask(ctx, driver.AskRequest{Name: req.Name, Work: req.Metadata[driver.WorkKey]})
	case "break":
		_, err = d.(driver.Breaker).Break(ctx, req.Name, 1795225289917391)
	case "inspect":
		_, err = d.Inspect(ctx, req.Name)
	case "list":
		_, err = d.(driver.Lister).List(ctx, driver.ListRequest{Namespace: "n", Limit: 1})
	default:
		panic(what)
	}
	return err
}

// failing makes a call of which a server can make an error. The owner "a" may hold the lock. Other tests
// move the slot of their key.
func failing(t *testing.T, d driver.Driver, what string) error {
	switch what {
	case "acquire":
		return call(t.Context(), d, what, "free", "b")
	case "cancel":
		return call(t.Context(), d, what, "kinds", "c")
	}
	return call(t.Context(), d, what, "kinds", "a")
}

// kinds names the kinds of an error.
func kinds(err error) string {
	var all []string
	for _, kind := range []struct {
		error
		name string
	}{
		{driver.ErrForeign, "foreign"}, {driver.ErrRefused, "refused"}, {driver.ErrTemporary, "temporary"}, {driver.ErrNotDone, "not sent"},
		{driver.ErrReplayed, "replayed"},
	} {
		if errors.Is(err, kind.error) {
			all = append(all, kind.name)
		}
	}
	return strings.Join(all, ", ")
}

// ground is a server, and a driver over a client with the default number of retries.
type ground struct {
	t      *testing.T
	server *servers.Redis
	proxy  *faultnet.Proxy
	client *redis.Client
	driver.Driver
	redial atomic.Pointer[func() error] // called before a new connection is made
}

func (g *ground) Unwrap() driver.Driver { return g.Driver }

func newGround(t *testing.T, server *servers.Redis, options redis.Options) *ground {
	g := &ground{t: t, server: server, proxy: faultnet.New(t, server.Addr())}
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if redial := g.redial.Load(); redial != nil {
			if err := (*redial)(); err != nil {
				return nil, err
			}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	options.DialerRetries = 1 // go-redis pauses between retries
	g.client = newClient(t, g.proxy, options)
	g.Driver = driverOver(t, g.client)
	return g
}

// overTheClient makes the application's client send the calls.
func (g *ground) overTheClient() {
	g.Driver = driverOver(g.t, struct{ redis.UniversalClient }{g.client})
}

// connect makes the driver connect, and the owner "a" hold the lock.
func connect(t *testing.T, d driver.Driver) {
	must(t, call(t.Context(), d, "acquire", "kinds", "a"))
	must(t, failing(t, d, "extend"))
}

// loseOne drops the answer to the next script call, and calls then before the client reconnects.
func (g *ground) loseOne(then func() error) {
	g.redial.Store(&then)
	g.proxy.DropReplies(faultnet.First(1, faultnet.Containing("evalsha")))
}

func refuse() error { return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED} }

func TestDriver_C_failedCall_kind(t *testing.T) {
	t.Parallel()
	const all = "acquire release cancel extend ask inspect"
	for what, c := range map[string]struct {
		server  []string // its options
		options redis.Options
		fault   func(*ground)
		calls   string
		want    string
		effect  bool
		text    string
	}{
		"no server": {
			fault: func(g *ground) {
				connect(g.t, g)
				g.proxy.Refuse()
				servers.Await(g.t, 5*time.Second, "a refused dial", func() bool {
					var op *net.OpError
					return errors.As(g.client.Ping(g.t.Context()).Err(), &op) && op.Op == "dial"
				})
			},
			calls: all, want: "not sent", text: "start Redis",
		},
		"no connection is free": {
			options: redis.Options{PoolSize: 1, PoolTimeout: 10 * time.Millisecond},
			fault: func(g *ground) {
				g.overTheClient()
				conn := g.client.Conn()
				g.t.Cleanup(func() { _ = conn.Close() })
				must(g.t, conn.Ping(g.t.Context()).Err())
			},
			calls: "acquire inspect", want: "not sent",
		},
		"the client is closed": {
			fault: func(g *ground) { g.overTheClient(); must(g.t, g.client.Close()) },
			calls: "acquire release inspect", want: "not sent",
		},
		"a hook refuses": {
			fault: func(g *ground) { g.overTheClient(); g.client.AddHook(refusal) },
			calls: "acquire release inspect", want: "not sent",
		},
		"the password is wrong": {
			server: []string{"--requirepass", "right"}, options: redis.Options{Password: "wrong"},
			calls: all, want: "refused, not sent", text: "password",
		},
		"the password is missing": {
			server: []string{"--requirepass", "right"},
			calls:  all, want: "refused", text: "password",
		},
		"each answer is lost": {
			fault: func(g *ground) { connect(g.t, g); g.proxy.DropReplies(faultnet.Containing("evalsha")) },
			calls: "acquire release cancel ask inspect", want: "replayed", effect: true,
		},
		"the only answer is lost": {
			fault: func(g *ground) { connect(g.t, g); g.proxy.DropReplies(faultnet.Containing("evalsha")) },
			calls: "extend", want: "", effect: true,
		},
		"an answer is lost, then no server": {
			fault: func(g *ground) { connect(g.t, g); g.loseOne(refuse) },
			calls: "acquire release inspect", want: "not sent, replayed", effect: true,
		},
		"an answer is lost, then a replica": {
			fault: func(g *ground) {
				connect(g.t, g)
				g.loseOne(func() error {
					_, err := g.server.Do("REPLICAOF", "127.0.0.1", "1")
					return err
				})
			},
			calls: "acquire release cancel", want: "temporary, replayed", effect: true,
		},
		"a replica, at each try": {
			fault: func(g *ground) { connect(g.t, g); do(g.t, g.server, "REPLICAOF", "127.0.0.1", "1") },
			calls: "acquire release cancel extend raise ask", want: "temporary", text: "master",
		},
		"a replica without the record": {
			fault: func(g *ground) { do(g.t, g.server, "REPLICAOF", "127.0.0.1", "1") },
			calls: "acquire release cancel extend raise ask", want: "temporary", text: "master",
		},
		"a right is missing": {
			fault: func(g *ground) { do(g.t, g.server, "ACL", "SETUSER", "default", "-evalsha") },
			calls: all, want: "refused", text: "'evalsha'",
		},
		"a right is missing in a script": {
			fault: func(g *ground) {
				connect(g.t, g)
				do(g.t, g.server, "ACL", "SETUSER", "default", "-getex", "-get", "-pexpire")
			},
			calls: "acquire release ask inspect", want: "refused", text: "lacks a right",
		},
		"the memory is full": {
			fault: func(g *ground) { do(g.t, g.server, "CONFIG", "SET", "maxmemory", "1") },
			calls: "acquire", want: "refused, not sent", text: "maxmemory",
		},
		"a command is renamed": {
			server: []string{"--rename-command", "EVALSHA", "renamed"},
			calls:  all, want: "refused", text: "rename-command",
		},
		"data of another program": {
			fault: func(g *ground) { do(g.t, g.server, "RPUSH", "n:{kinds}:lock", "x") },
			calls: "release inspect", want: "foreign",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, name := range strings.Fields(c.calls) {
				t.Run(name, func(t *testing.T) {
					g := newGround(t, servers.StartRedis(t, c.server...), c.options)
					if c.fault != nil {
						c.fault(g)
					}
					err := failing(t, g, name)
					if err == nil || kinds(err) != c.want || driver.MayHaveEffect(err) != c.effect || !strings.Contains(err.Error(), c.text) {
						t.Errorf("the kinds are %q, and an effect is possible: %t; want %q, %t and %q in: %v",
							kinds(err), driver.MayHaveEffect(err), c.want, c.effect, c.text, err)
					}
				})
			}
		})
	}
}

// In a Cluster another node may soon replace a node that does not answer.
func TestDriver_C_failedCallOnCluster_kind(t *testing.T) {
	t.Parallel()
	lost := func(n *faultnet.Net) { n.DropReplies(faultnet.Containing("evalsha")) }
	for what, c := range map[string]struct {
		fault       func(*faultnet.Net)
		calls, want string
		effect      bool
	}{
		"no server":               {(*faultnet.Net).Refuse, "acquire release cancel extend raise ask inspect", "temporary, not sent", false},
		"each answer is lost":     {lost, "acquire release cancel raise ask inspect", "replayed", true},
		"the only answer is lost": {lost, "extend", "", true},
	} {
		for _, name := range strings.Fields(c.calls) {
			t.Run(what+"/"+name, func(t *testing.T) {
				options := on("cluster")
				options.DialerRetries = 1
				d, network := interrupted(t, options)
				must(t, failing(t, d, "inspect"))
				must(t, failing(t, d, "extend"))
				c.fault(network)
				if err := failing(t, d, name); err == nil || kinds(err) != c.want || driver.MayHaveEffect(err) != c.effect {
					t.Errorf("the kinds are %q, and an effect is possible: %t; want %q, %t: %v", kinds(err), driver.MayHaveEffect(err), c.want, c.effect, err)
				}
			})
		}
	}
}

// hook is one of the application, for single commands.
type hook func(next redis.ProcessHook) redis.ProcessHook

func (hook) DialHook(next redis.DialHook) redis.DialHook            { return next }
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// refusal sends nothing.
var refusal hook = func(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errors.New("too many requests") }
}

// Close closes the driver's connections. The caller's client stays open.
func TestService_closesItsConnections(t *testing.T) {
	client := newClient(t, servers.SharedRedis(t), redis.Options{ClientName: t.Name()})
	d := driverOver(t, client)
	connections := func() int {
		return strings.Count(do(t, servers.SharedServer(), "CLIENT", "LIST"), "name="+t.Name()+" ")
	}
	if err := client.Ping(t.Context()).Err(); err != nil || connections() != 1 {
		t.Fatalf("%v, %d connections", err, connections())
	}
	if _, err := d.Inspect(t.Context(), owner("a").Name); err != nil || connections() != 2 {
		t.Errorf("after a call: %v, %d connections, want 2", err, connections())
	}
	must(t, d.Close())
	servers.Await(t, 10*time.Second, "the end of the driver's connection", func() bool { return connections() == 1 })
	must(t, client.Ping(t.Context()).Err())
}

func TestService_C_unknownSlots_error(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, io.EOF }, MaxRedirects: -1,
	})
	defer client.Close()
	if err := call(t.Context(), driverOver(t, client), "release", "k", "a"); !errors.Is(err, io.EOF) {
		t.Errorf("Release: %v", err)
	}
}
