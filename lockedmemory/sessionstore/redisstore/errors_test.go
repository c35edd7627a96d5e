package redisstore_test

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

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// ground is a session with its lock on one server, and its store on another server behind a proxy.
type ground struct {
	*rig
	server *servers.Redis
	proxy  *faultnet.Proxy
	redial atomic.Pointer[func()] // called before a new connection fails
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{server: servers.StartRedis(t)}
	g.proxy = faultnet.New(t, g.server.Addr())
	g.rig = newRig(t, g.proxy, &sessionstore.Retention{IdleTTL: time.Hour}, &redis.Options{DialerRetries: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if redial := g.redial.Load(); redial != nil {
				(*redial)()
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	g.locks(t, newRig(t).client, &distlock.Options{TTL: 4 * time.Second})
	g.rig = g.named(t, t.Name())
	return g
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// calls are those of a turn. The token of the lease is shown to the store before them, unless they are the
// first.
var calls = map[string]func(context.Context, *ground) error{
	"Save":       func(ctx context.Context, g *ground) error { return g.memory.Save(ctx, "q", "a") },
	"named Save": func(ctx context.Context, g *ground) error { return g.memory.SaveOnce(ctx, "id", "q", "a") },
	"Clear":      func(ctx context.Context, g *ground) error { return g.memory.Clear(ctx) },
	"Load":       func(ctx context.Context, g *ground) error { return g.opens(ctx) },
	"Search":     func(ctx context.Context, g *ground) error { _, err := g.memory.Search(ctx, "q", 1); return err },
	"Sessions": func(ctx context.Context, g *ground) (last error) {
		for _, err := range g.store.Sessions(ctx) {
			last = err
		}
		return last
	},
}

func TestStore_C_failedCall_kind(t *testing.T) {
	t.Parallel()
	unavailable, refused, unknown := distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown
	const (
		writes = "Save, first Save, named Save, Clear, first Clear"
		reads  = "Load, first Load, Search"
	)
	lost := func(then func(*ground)) func(*testing.T, *ground) {
		return func(_ *testing.T, g *ground) {
			next := func() { then(g) }
			g.proxy.DropReplies(faultnet.First(1, faultnet.Containing("{"+g.key+"}:")))
			g.redial.Store(&next)
		}
	}
	for what, c := range map[string]struct {
		fault func(*testing.T, *ground)
		calls map[string]error
		text  string
	}{
		"no server": {
			func(t *testing.T, g *ground) {
				g.proxy.Refuse()
				servers.Await(t, 5*time.Second, "a refused dial", func() bool { return isDial(g.client.Ping(t.Context()).Err()) })
			},
			map[string]error{writes: unavailable, reads: unavailable}, "",
		},
		"each answer is lost": {
			func(_ *testing.T, g *ground) { g.proxy.DropReplies(faultnet.Containing("{" + g.key + "}:")) },
			map[string]error{writes: unknown, reads: unavailable}, "",
		},
		"an answer is lost, then no server": {
			lost(func(*ground) {}),
			map[string]error{writes: unknown, reads: unavailable}, "",
		},
		"the memory is full": {
			func(t *testing.T, g *ground) { do(t, g.server, "CONFIG", "SET", "maxmemory", "1") },
			map[string]error{"Save, first Save, named Save, first Load": refused}, "maxmemory",
		},
		"a replica": {
			func(t *testing.T, g *ground) { do(t, g.server, "REPLICAOF", "127.0.0.1", "1") },
			map[string]error{writes: unavailable, "first Load": unavailable}, "master",
		},
		"no right to write": {
			func(t *testing.T, g *ground) { do(t, g.server, "ACL", "SETUSER", "default", "-xadd") },
			map[string]error{writes: refused, "first Load": refused}, "xadd",
		},
		"no right to scripts": {
			func(t *testing.T, g *ground) { do(t, g.server, "ACL", "SETUSER", "default", "-evalsha") },
			map[string]error{"first Save, named Save, Clear, first Clear, first Load": refused}, "evalsha",
		},
		"no right to read": {
			func(t *testing.T, g *ground) { do(t, g.server, "ACL", "SETUSER", "default", "-xrange", "-xrevrange") },
			map[string]error{reads: refused}, "range",
		},
		"no right to list": {
			func(t *testing.T, g *ground) { do(t, g.server, "ACL", "SETUSER", "default", "-scan") },
			map[string]error{"Sessions": refused}, "scan",
		},
		"no right after the write": {
			func(t *testing.T, g *ground) { do(t, g.server, "ACL", "SETUSER", "default", "-pexpire", "-unlink") },
			map[string]error{"first Save, Clear, first Clear": unknown, "named Save, first Load": refused}, "right",
		},
		"no right to note a turn": {
			func(t *testing.T, g *ground) { do(t, g.server, "ACL", "SETUSER", "default", "-hset") },
			map[string]error{"named Save": refused}, "hset",
		},
		"data of another program": {
			func(t *testing.T, g *ground) { do(t, g.server, "DEL", g.log()); do(t, g.server, "SET", g.log(), "x") },
			map[string]error{writes: refused, reads: refused}, "Namespace",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for names, want := range c.calls {
				for _, name := range strings.Split(names, ", ") {
					t.Run(name, func(t *testing.T) {
						g := newGround(t)
						must(t, g.memory.Save(t.Context(), "before", "the turn"))
						g.turn(t, func(ctx context.Context) {
							call, isFirst := strings.CutPrefix(name, "first ")
							if !isFirst && call != "named Save" && call != "Search" && call != "Sessions" {
								must(t, g.memory.Save(ctx, "before", "the call"))
							}
							c.fault(t, g)
							err := calls[call](ctx, g)
							for _, each := range []error{unavailable, refused, unknown, distlock.ErrLost, context.Canceled, context.DeadlineExceeded} {
								if errors.Is(err, each) != (each == want) {
									t.Errorf("%v; want %v", err, want)
								}
							}
							if err == nil || !strings.Contains(err.Error(), c.text) {
								t.Errorf("no %q in: %v", c.text, err)
							}
							if rights := strings.HasPrefix(what, "no right"); errors.Is(err, driver.ErrRights) != rights {
								t.Errorf("a right is missing: %t, and the error: %v", rights, err)
							}
						})
					})
				}
			}
		})
	}
}

// ⚑ go-redis leaves the commands of a pipeline without an error if Redis rejects its connection.
func TestSave_C_rejectedConnection_refused(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	do(t, server, "ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
	r := newRig(t, server, &redis.Options{Username: "app", Password: "first"}, &sessionstore.Retention{IdleTTL: time.Hour})
	_ = r.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, r.memory.Save(ctx, "q", "a"))
		do(t, server, "ACL", "SETUSER", "app", "resetpass", ">second")
		do(t, server, "CLIENT", "KILL", "USER", "app")
		if err := r.memory.Save(ctx, "q2", "a2"); !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) {
			t.Errorf("Save: %v, want a definite refusal", err)
		}
		if history, err := r.store.Load(ctx, ""); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("Load: %q, %v, want a refusal", history, err)
		}
		return nil
	})
}

// Locks in one process do not protect sessions that all processes see.
func TestStore_C_locksInProcess_refused(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	locks := memlock.NewDriver()
	for name, d := range map[string]driver.Driver{"memlock": locks, "memlock, wrapped": drivertest.NewFaults(locks)} {
		locker, err := distlock.New(d, nil)
		must(t, err)
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		_, err = lockedmemory.New(s.store, locker, lockedmemory.FixedKey(s.key), nil)
		if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "redislock.New") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
