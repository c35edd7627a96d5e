package redisconn

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// reply is an error that a server has answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// Another copy follows only an error that may pass. A copy that was rejected, or not written, has no
// effect. If an earlier copy may have taken effect, the call may have, whatever became of its last copy.
func TestFateOf(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{})
	defer client.Close()
	dial := &net.OpError{Op: "dial", Err: io.EOF}
	for _, c := range []struct {
		err           error
		again, effect bool
	}{
		{io.EOF, true, true},
		{&net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}, true, true},
		{notSent(io.EOF), true, false},
		{dial, true, false},
		{reply("LOADING Redis is loading the dataset in memory"), true, false},
		{reply("MOVED 3999 127.0.0.1:6381"), true, false},
		{reply("OOM command not allowed"), false, false},
		{context.DeadlineExceeded, false, false},
		{context.Canceled, false, false},
	} {
		if again, effect := fateOf(client, c.err); again != c.again || effect != c.effect {
			t.Errorf("%v: another copy %t, an effect %t", c.err, again, effect)
		}
	}
	for _, err := range []error{notSent(io.EOF), io.EOF} {
		if after := WithEarlierCopy(true, err); !mayHaveEffect(after) || !errors.Is(after, io.EOF) {
			t.Errorf("%#v: %#v", err, after)
		}
	}
}

// unreachable is the client of a Cluster whose node it never reaches. It counts how often it asks for nodes.
func unreachable() (client *redis.ClusterClient, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	return redis.NewClusterClient(&redis.ClusterOptions{
		MaxRedirects: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF },
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			asked.Add(1)
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
		},
	}), asked
}

func TestReload_ifItMayHelp(t *testing.T) {
	for _, c := range []struct {
		err  error
		anew int32
	}{
		{io.EOF, 1},
		{reply("CLUSTERDOWN The cluster is down"), 1},
		{reply("READONLY You can't write against a read only replica."), 1},
		{reply("OOM command not allowed"), 0},
		{nil, 0},
		{fmt.Errorf("a call: %w", redis.ErrPoolTimeout), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, asked := unreachable()
			defer client.Close()
			reload(client, c.err)
			synctest.Wait()
			if asked.Load() != c.anew {
				t.Errorf("%v: the client has asked %d times, want %d", c.err, asked.Load(), c.anew)
			}
			time.Sleep(time.Second) // the client pauses between two loads
		})
	}
}

func TestNodeQueue_L_failedTrip_reloadsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, asked := unreachable()
		defer client.Close()
		_ = client.ForEachMaster(t.Context(), func(context.Context, *redis.Client) error { return nil })
		transport := New(client, nil)
		defer transport.Close()
		q := transport.queueOf("k")
		if q.options == nil {
			t.Fatal("the client does not know its nodes")
		}
		before := asked.Load()
		if err := transport.Do(t.Context(), "k", redis.NewCmd(t.Context(), "ping")); err == nil {
			t.Error("the call has not failed")
		}
		synctest.Wait()
		if asked.Load() != before+1 {
			t.Errorf("the client has asked %d times for the nodes, want 1", asked.Load()-before)
		}
		time.Sleep(time.Second) // the client pauses between two loads
	})
}

// A connection has the options of the application's client, but for its pool and its repetitions.
func TestOwnOptions(t *testing.T) {
	cache := redis.CacheConfig{MaxEntries: 1}
	options := redis.Options{
		PoolSize: 30, MaxIdleConns: 20, MaxActiveConns: 40, MaxRetries: 5, Password: "p", DB: 3, ClientName: "n",
		ReadTimeout: -1, WriteTimeout: -2, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute,
		ContextTimeoutEnabled: true, PipelineReadBufferSize: 1 << 20, DialerRetries: 7,
		ClientSideCacheConfig: &cache, ClientSideCache: redis.NewLocalCache(cache), Limiter: struct{ redis.Limiter }{},
	}
	follower := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Password: "p", DB: 3, ClientName: "n", PoolSize: 30,
		ReadTimeout: -1, WriteTimeout: -2, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute,
	})
	node := redis.NewClient(&options)
	for name, c := range map[string]struct {
		client       *redis.Client
		life, jitter time.Duration
	}{
		"a node":   {node, time.Hour, time.Minute},
		"Sentinel": {follower, masterFor, 0},
	} {
		client := c.client
		defer client.Close()
		client.Options().MinIdleConns = 1 // now, so that it connects to nothing
		own := newConn(ownOptions(client.Options())).client
		defer own.Close()
		o, of := own.Options(), client.Options()
		if o.PoolSize != 1 || o.MinIdleConns != 0 || o.MaxIdleConns != 0 || o.MaxActiveConns != 0 || o.MaxRetries != 0 ||
			o.PipelineReadBufferSize != 0 || o.PipelinePoolSize >= 0 || o.ContextTimeoutEnabled || o.ReadTimeout != of.ReadTimeout ||
			o.WriteTimeout != of.WriteTimeout || o.ConnMaxLifetime != c.life || o.ConnMaxLifetimeJitter != c.jitter ||
			o.DialerRetries != 1 || o.ClientSideCache != nil || o.ClientSideCacheConfig != nil || o.Limiter != nil ||
			o.Password != "p" || o.DB != 3 || o.ClientName != "n" ||
			o.PushNotificationProcessor == of.PushNotificationProcessor ||
			o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A client that follows Sentinels learns of a failover, and the connections of a transport do not.
func TestTransport_S1_followsFailovers(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	transport := New(client, nil)
	defer transport.Close()
	if transport.queueOf("k").options != nil {
		t.Error("calls go over connections of the transport")
	}
	client.Options().PoolSize = 0 // used up
	if transport.queueOf("k").options == nil {
		t.Error("calls go over a client without a free connection")
	}
}

// The commands behind a script that the server does not know take effect after it, and those before it once.
func TestSend_S2_unknownScript_keepsTheOrder(t *testing.T) {
	l := open(t, onNode(t))
	add := NewScript("-- " + rand.Text() + "\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])")
	before := redis.NewIntCmd(t.Context(), "incr", "before")
	calls := []*Call{add.Command(t.Context(), []string{"k"}, 1), add.Command(t.Context(), []string{"k"}, 10)}
	after := redis.NewIntCmd(t.Context(), "get", "k")
	err := l.shared.Send(t.Context(), "k", before, calls[0], after, calls[1])
	if err != nil || before.Val() != 1 || after.Val() != 1 {
		t.Errorf("%v: before %d, after %d, want 1 and 1", err, before.Val(), after.Val())
	}
	for i, want := range []int64{1, 11} {
		if n, err := calls[i].Int64(); err != nil || n != want {
			t.Errorf("call %d: %d, %v, want %d", i, n, err, want)
		}
	}
}

// The first pipeline of a client of another type meets several nodes that do not know a script.
func TestEach_C_unknownScriptOnSeveralNodes_onCluster(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.SharedTopology("cluster").Addrs()})
	over := New(struct{ redis.UniversalClient }{cluster}, nil)
	defer cluster.Close()
	defer over.Close()
	script := NewScript("-- " + rand.Text() + "\nreturn redis.call('EXISTS', KEYS[1])")
	var keys [][]string
	for i := range 20 {
		keys = append(keys, []string{fmt.Sprint("key ", i)})
	}
	for i, reply := range script.Each(t.Context(), over, keys, make([][]any, len(keys))) {
		if err := reply.Err(); err != nil {
			t.Errorf("key %d: %v", i, err)
		}
	}
}

// A call that fails because its deadline left no time for another copy ends at the deadline.
func TestRepeat_L_deadlineLeavesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			deadline := time.Now().Add(10 * time.Microsecond)
			ctx, cancel := context.WithDeadline(t.Context(), deadline)
			sent := 0
			_, err := New(nil, nil).Repeat(ctx, func() error {
				sent++
				return io.EOF
			})
			if sent == 1 && time.Now().Before(deadline) || !errors.Is(err, io.EOF) {
				t.Errorf("after %d copies, %s before its deadline: %v", sent, time.Until(deadline), err)
			}
			cancel()
		}
	})
}

// A server that was away for long gets the next copy soon after it is back.
func TestRepeat_L_pauseIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: 100})
		defer client.Close()
		sent, last := 0, time.Now()
		_, err := New(client, nil).Repeat(t.Context(), func() error {
			if pause := time.Since(last); pause > 512*time.Millisecond {
				t.Fatalf("copy %d comes %s after the one before", sent, pause)
			}
			sent, last = sent+1, time.Now()
			return io.EOF
		})
		if sent != 101 || !errors.Is(err, io.EOF) {
			t.Errorf("%d copies, %v", sent, err)
		}
	})
}

// Calls that begin while a transport closes are answered or refused, and later calls are refused.
func TestTransport_C_closesWhileCallsBegin(t *testing.T) {
	options := onNode(t)
	client := redis.NewUniversalClient(&options)
	defer client.Close()
	for name, over := range map[string]redis.UniversalClient{
		"a node":       client,
		"another type": struct{ redis.UniversalClient }{client},
	} {
		for range 200 {
			l := locks{over, New(over, nil)}
			call := func() error {
				_, err := l.holder(t.Context(), 0)
				return err
			}
			var all sync.WaitGroup
			begun := make(chan struct{}, 8)
			closed, end := context.WithCancel(context.Background())
			for range cap(begun) {
				all.Go(func() {
					var err error
					for ; err == nil && closed.Err() == nil; err = call() {
						select {
						case begun <- struct{}{}:
						default:
						}
					}
					<-closed.Done()
					for _, err := range []error{cmp.Or(err, redis.ErrClosed), call()} {
						if !errors.Is(err, redis.ErrClosed) {
							t.Errorf("%s: %v", name, err)
						}
					}
				})
			}
			<-begun
			l.shared.Close()
			end()
			all.Wait()
			if err := call(); !errors.Is(err, ErrNotDone) {
				t.Errorf("%s: after Close: %v", name, err)
			}
		}
	}
}

// endsAfter is a context that has ended when a command has its answer.
type endsAfter struct {
	context.Context
	first *redis.StatusCmd
}

func (c *endsAfter) Err() error {
	if c.first.Val() == "OK" {
		return context.Canceled
	}
	return nil
}

// twoNodes makes locks on a Cluster whose nodes the client knows, and keys of two of them.
func twoNodes(t *testing.T) (l *locks, here, there string) {
	t.Helper()
	cluster := servers.SharedTopology("cluster").Cluster
	l = open(t, redis.UniversalOptions{Addrs: cluster.Addrs()})
	here, there = t.Name(), t.Name()
	for cluster.MasterOf(there) == cluster.MasterOf(here) {
		there += "+"
	}
	// The first command loads the nodes.
	must(t, l.shared.Do(t.Context(), here, redis.NewCmd(t.Context(), "exists", here)))
	return l, here, there
}

// ctx ends between two commands of a pipeline. The first one has taken effect. The client of a Cluster that
// does not know the nodes yet sends them one by one. Another client sends the second again: its slot moves.
func TestSend_C_endsBetween_isUnknown_onCluster(t *testing.T) {
	anew := open(t, redis.UniversalOptions{Addrs: servers.SharedTopology("cluster").Addrs()})
	l, here, there := twoNodes(t)
	for second, l := range map[string]*locks{here: anew, there: l} {
		ctx := &endsAfter{t.Context(), redis.NewStatusCmd(t.Context(), "set", here, "v", "px", 10000)}
		err := l.shared.Send(ctx, here, ctx.first, redis.NewBoolCmd(ctx, "pexpire", second, 60000))
		if ctx.Err() == nil || err == nil || !mayHaveEffect(err) {
			t.Errorf("Send: %v, want an unknown outcome; the first command: %v", err, ctx.first)
		}
	}
}

// A command before the first redirected one keeps its answer. One behind it is sent again in its order.
func TestSend_C_answered_isSentOnce_onCluster(t *testing.T) {
	l, here, there := twoNodes(t)
	ctx := t.Context()
	before, moved := redis.NewIntCmd(ctx, "incr", here), redis.NewIntCmd(ctx, "incr", there)
	after := redis.NewStringCmd(ctx, "xadd", "{"+here+"}log", "1-1", "k", "v")
	if err := l.shared.Send(ctx, here, before, moved, after); err != nil || before.Val() != 1 || moved.Val() != 1 {
		t.Errorf("Send: %v; %v, %v, want 1 of each", err, before, moved)
	}
	if err := after.Err(); !IsReply(err) || !errors.Is(err, ErrReplayed) {
		t.Errorf("the second copy of %v, want a refusal behind an earlier copy", after)
	}
}

// A node of a Cluster rejects the first copy of a call, and the client sends no second one.
func TestSend_C_rejectedThenUnsent_hasNoEffect_onCluster(t *testing.T) {
	l, here, there := twoNodes(t)
	_ = l.client.Close()
	call := NewCall(t.Context(), 2, "set", there, "v")
	if err := l.shared.Send(t.Context(), here, call); err != nil || !errors.Is(call.Failure(), ErrNotDone) {
		t.Errorf("Send: %v; the call: %v, want no effect", err, call.Failure())
	}
}

// The network breaks at each of its operations in turn. A write whose error says that it has no effect has
// none, however the client of this version connects, pools and repeats.
func TestEffects_C_brokenAtEachOperation(t *testing.T) {
	server := servers.SharedServer()
	sweepEffects(t, redis.UniversalOptions{Addrs: []string{server.Addr()}}, func(string) *servers.Redis { return server })
}

func TestEffects_C_brokenAtEachOperation_onCluster(t *testing.T) {
	cluster := servers.SharedTopology("cluster")
	sweepEffects(t, redis.UniversalOptions{Addrs: cluster.Addrs()}, cluster.Master)
}

func sweepEffects(t *testing.T, options redis.UniversalOptions, master func(key string) *servers.Redis) {
	t.Helper()
	options.DialerRetries, options.MinRetryBackoff, options.MaxRetryBackoff = 1, time.Millisecond, 2*time.Millisecond
	for name, c := range map[string]struct {
		lasting bool
		repeats int
	}{
		"for a moment": {}, "for a moment, repeated": {repeats: 2}, "for good": {lasting: true, repeats: 1},
	} {
		t.Run(name, func(t *testing.T) {
			lost, unsent := 0, 0
			network := &brokenNetwork{lasting: c.lasting}
			options := options
			options.Dialer, options.MaxRetries, options.MaxRedirects = network.dial, c.repeats, c.repeats
			if c.repeats == 0 {
				options.MaxRetries, options.MaxRedirects = -1, -1 // 0 is the default
			}
			// The operations of a run differ with the nodes that its client asks. The sweep ends behind several
			// runs whose writes all succeed. An unbroken network can fail too, on a busy machine.
			for n, whole := 0, 0; whole < 8; n++ {
				l := open(t, options)
				whole++
				key := "{" + rand.Text() + "}"
				node := master(key)
				network.breakAt(n)
				for i, write := range []func(context.Context, string) error{l.writeAlone, l.writeTogether, l.writeAlone, l.writeTogether} {
					key := key + string(rune('a'+i))
					err := write(t.Context(), key)
					if err != nil {
						whole = 0
					}
					found, doErr := node.Do("EXISTS", key)
					must(t, doErr)
					switch effect, may := found == "1", mayHaveEffect(err); {
					case err == nil && !effect:
						t.Errorf("operation %d, write %d: no error, and no effect", n, i)
					case err != nil && !may && effect:
						t.Errorf("operation %d, write %d took effect: %v", n, i, err)
					case may && effect:
						lost++
					case errors.Is(err, ErrNotDone):
						unsent++
					}
				}
				if network.broke() {
					whole = 0
				}
			}
			if c.repeats == 0 && (lost == 0 || unsent == 0) {
				t.Errorf("%d writes lost their answers, %d were not sent", lost, unsent)
			}
		})
	}
}

// writeAlone sets a key by a script.
func (l *locks) writeAlone(ctx context.Context, key string) error {
	cmd, _ := takeScript.Run(ctx, l.shared, []string{key}, "v")
	return cmd.Err()
}

// writeTogether sets a key by the first command of a pipeline.
func (l *locks) writeTogether(ctx context.Context, key string) error {
	_, err := l.shared.Repeat(ctx, func() error {
		call := NewCall(ctx, 2, "set", key, "v")
		if err := l.shared.Send(ctx, key, call, redis.NewCmd(ctx, "pexpire", key, 60_000)); err != nil {
			return err
		}
		return call.Failure()
	})
	return err
}

// brokenNetwork fails one operation of all its connections, or all from that one. It carries out a Write and
// a Read, and loses their results. So the server has carried out each request that was written.
type brokenNetwork struct {
	lasting bool
	at      atomic.Int64 // the operation that fails
	next    atomic.Int64
}

var errBrokenNetwork = errors.New("the network of the test is broken")

// breakAt begins to count the operations.
func (n *brokenNetwork) breakAt(at int) {
	n.next.Store(0)
	n.at.Store(int64(at))
}

// broke reports whether the operation was reached.
func (n *brokenNetwork) broke() bool { return n.next.Load() > n.at.Load() }

func (n *brokenNetwork) fails() bool {
	now, at := n.next.Add(1)-1, n.at.Load()
	return now == at || n.lasting && now > at
}

func (n *brokenNetwork) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.fails() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errBrokenNetwork}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &breakingConn{conn, n}, nil
}

type breakingConn struct {
	net.Conn
	network *brokenNetwork
}

func (c *breakingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.network.fails() {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = c.Conn.Read(make([]byte, 1)) // until the server has carried it out
		return 0, c.broken("write")
	}
	return n, err
}

func (c *breakingConn) Read(b []byte) (int, error) {
	fails := c.network.fails()
	n, err := c.Conn.Read(b)
	if fails {
		return 0, c.broken("read")
	}
	return n, err
}

func (c *breakingConn) broken(op string) error {
	_ = c.Close()
	return &net.OpError{Op: op, Net: "tcp", Err: errBrokenNetwork}
}
