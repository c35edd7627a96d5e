package redislock_test

import (
	"context"
	"errors"
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

// of is a request of an owner for a lock of this file.
func of(c string) driver.AcquireRequest {
	req := owner(c)
	req.Name.Key = "kinds" // other tests move the slot of their key
	return req
}

// operations are calls of a driver that can fail. The owner "a" holds the lock.
var operations = map[string]func(context.Context, driver.Driver) error{
	"acquire": func(ctx context.Context, d driver.Driver) error {
		req := of("b")
		req.Name.Key = "free"
		_, err := d.Acquire(ctx, req)
		return err
	},
	"release": func(ctx context.Context, d driver.Driver) error {
		req := of("a")
		_, err := d.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		return err
	},
	"clean-up": func(ctx context.Context, d driver.Driver) error {
		req := of("c")
		_, err := d.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: time.Minute})
		return err
	},
	"extend": func(ctx context.Context, d driver.Driver) error {
		req := of("a")
		extend := driver.ExtendRequest{Name: req.Name, Owner: req.Owner, TTL: time.Minute}
		return d.Extend(ctx, []driver.ExtendRequest{extend, extend})[1].Err // in a pipeline
	},
	"raise": func(ctx context.Context, d driver.Driver) error {
		req := of("a")
		_, err := d.Raise(ctx, driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: time.Now().Add(time.Hour).UnixMicro()})
		return err
	},
	"inspect": func(ctx context.Context, d driver.Driver) error {
		_, err := d.Inspect(ctx, of("a").Name)
		return err
	},
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
	mustGrant(t, d, of("a"))
	must(t, operations["extend"](t.Context(), d))
}

// loseOne drops the answer to the next script call, and calls then before the client reconnects.
func (g *ground) loseOne(then func() error) {
	g.redial.Store(&then)
	g.proxy.DropReplies(faultnet.First(1, faultnet.Containing("evalsha")))
}

func refuse() error { return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED} }

func TestDriver_C_failedCall_kind(t *testing.T) {
	t.Parallel()
	const all = "acquire release clean-up extend inspect"
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
			fault: func(g *ground) { g.overTheClient(); g.client.AddHook(refusal{}) },
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
			calls: "acquire release clean-up inspect", want: "replayed", effect: true,
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
			calls: "acquire release clean-up", want: "temporary, replayed", effect: true,
		},
		"a replica, at each try": {
			fault: func(g *ground) { connect(g.t, g); do(g.t, g.server, "REPLICAOF", "127.0.0.1", "1") },
			calls: "acquire release clean-up extend raise", want: "temporary", text: "master",
		},
		"a replica without the record": {
			fault: func(g *ground) { do(g.t, g.server, "REPLICAOF", "127.0.0.1", "1") },
			calls: "acquire release clean-up extend raise", want: "temporary", text: "master",
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
			calls: "acquire release inspect", want: "refused", text: "lacks a right",
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
					err := operations[name](t.Context(), g)
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
	for what, c := range map[string]struct {
		fault  func(*faultnet.Net)
		want   map[bool]string // true: of an extend
		effect bool
	}{
		"no server":           {(*faultnet.Net).Refuse, map[bool]string{false: "temporary, not sent", true: "temporary, not sent"}, false},
		"each answer is lost": {func(n *faultnet.Net) { n.DropReplies(faultnet.Containing("evalsha")) }, map[bool]string{false: "replayed", true: ""}, true},
	} {
		for name, call := range operations {
			t.Run(what+"/"+name, func(t *testing.T) {
				options := on("cluster")
				options.DialerRetries = 1
				d, network := interrupted(t, options)
				must(t, operations["inspect"](t.Context(), d))
				must(t, operations["extend"](t.Context(), d))
				c.fault(network)
				err := call(t.Context(), d)
				if want := c.want[name == "extend"]; err == nil || kinds(err) != want || driver.MayHaveEffect(err) != c.effect {
					t.Errorf("the kinds are %q, and an effect is possible: %t; want %q, %t: %v", kinds(err), driver.MayHaveEffect(err), want, c.effect, err)
				}
			})
		}
	}
}

// refusal is a hook of the application that sends nothing.
type refusal struct{}

func (refusal) DialHook(next redis.DialHook) redis.DialHook { return next }
func (refusal) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errors.New("too many requests") }
}
func (refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
