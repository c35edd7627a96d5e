package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// On the way to a distant server, no call waits for the round trip of another call.
func TestNodeQueue_distantServer_noExtraTrip(t *testing.T) {
	options, proxy := proxied(t)
	const together = 30
	options.PoolSize = together
	s, q, _ := patiently(t, options)
	q.patience = sharePatience
	var all sync.WaitGroup
	q.each(together, func(client *redis.Client) { _ = client.Ping(t.Context()).Err() })
	const (
		trip = 200 * time.Millisecond
		// A call that waits for another's round trip takes at least 1.6 of them.
		limit = trip * 3 / 2
	)
	proxy.Latency(trip / 2)
	for i := range 5 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * trip / 10)
			stop, start := leakcheck.Stalls(), time.Now()
			_, err := s.Inspect(t.Context(), name)
			if took := time.Since(start) - stop(); err != nil || took > limit {
				t.Errorf("call %d took %s, %v", i, took, err)
			}
		})
	}
	all.Wait()
	// Calls at the same time still share a round trip.
	began := q.latest
	for i := range together {
		all.Go(func() {
			stop, start := leakcheck.Stalls(), time.Now()
			_, err := s.Inspect(t.Context(), name)
			if took := time.Since(start) - stop(); err != nil || took > limit {
				t.Errorf("shared call %d took %s, %v", i, took, err)
			}
		})
	}
	all.Wait()
	if !q.latest.After(began) {
		t.Error("no round trip")
	}
	q.wantIdle(t)
}

// The commands behind a script that the server does not know take effect after it, and those before it once.
func TestSend_S2_unknownScript_keepsTheOrder(t *testing.T) {
	l := open(t, onNode(t))
	add := NewScript("-- " + fmt.Sprint(rand.Uint64()) + "\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])")
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
	t.Cleanup(func() {
		over.Close()
		_ = cluster.Close()
	})
	script := NewScript("-- " + fmt.Sprint(rand.Uint64()) + "\nreturn redis.call('EXISTS', KEYS[1])")
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

// refusal is an error reply.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// go-redis repeats a pipeline only for an error of its first command.
func TestNodeQueue_C_rejectedCall_isSentAgain(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
	w.pipeline = func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
		return func(ctx context.Context, cmds []redis.Cmder) error {
			err := next(ctx, cmds)
			for _, cmd := range cmds {
				if strings.Contains(fmt.Sprint(cmd.Args()...), "holder 2") {
					cmd.SetErr(refusal("TRYAGAIN Multiple keys request during rehashing of slot"))
				}
			}
			return err
		}
	}
	end := q.occupy(t, s, w)
	_, _, wait := q.acquire(t, s, 1) // the first of the pipeline
	var all sync.WaitGroup
	for i := 1; i < 4; i++ {
		all.Go(func() {
			reply, err := s.Acquire(context.Background(), acquireOf(i))
			if err != nil || reply.Outcome != driver.Granted || reply.Replayed {
				t.Errorf("%d: %+v, %v", i, reply, err)
			}
		})
	}
	q.awaitPending(t, 4)
	end()
	wait()
	all.Wait()
	if commands, pipelines := w.reset(); commands != 1 || !slices.Equal(pipelines, []int{4}) {
		t.Errorf("%d commands and pipelines of %d", commands, pipelines)
	}
	q.wantIdle(t)
}

// A hook of the application that refuses or panics fails the calls, and no others.
func TestNodeQueue_survivesHooks(t *testing.T) {
	stop := errors.New("stop")
	for what, hook := range map[string]redis.ProcessPipelineHook{
		"refuses": func(context.Context, []redis.Cmder) error { return stop },
		"panics":  func(context.Context, []redis.Cmder) error { panic(stop) },
	} {
		t.Run(what, func(t *testing.T) {
			s, q, w := patiently(t, onNode(t))
			w.pipeline = func(redis.ProcessPipelineHook) redis.ProcessPipelineHook { return hook }
			end := q.occupy(t, s, w)
			errs := make(chan error)
			for i := range 4 {
				go func() {
					_, err := s.Acquire(context.Background(), acquireOf(i))
					errs <- err
				}()
			}
			q.awaitPending(t, 4)
			end()
			for range 4 {
				if err := <-errs; !errors.Is(err, stop) && !errors.Is(err, errPanicked) {
					t.Errorf("error %v", err)
				}
			}
			q.wantIdle(t)
		})
	}
}

// A node of a Cluster that hangs delays no call for another node.
func TestNodeQueue_clusterNodes_areApart(t *testing.T) {
	cluster := servers.SharedTopology("cluster").Cluster
	network := faultnet.NewNet(t)
	s := open(t, redis.UniversalOptions{Addrs: cluster.Addrs(), Dialer: network.Dial, ContextTimeoutEnabled: true, PoolSize: 20})
	hangs, other := nameOf(0), nameOf(1)
	node := func(of driver.Name) *servers.Redis { return cluster.MasterOf(keyOf(of)) }
	for i := 2; node(other) == node(hangs); i++ {
		other = nameOf(i)
	}
	for _, name := range []driver.Name{hangs, other} {
		if _, err := s.Inspect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []driver.Name{hangs, other} {
		q := s.shared.queueOf(keyOf(name))
		if q.patience = time.Hour; q != s.shared.queueOf(keyOf(name)+"fence") {
			t.Error("one node has two queues")
		}
	}
	network.Only(node(hangs).Addr()).Cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var stuck sync.WaitGroup
	for range 10 {
		stuck.Go(func() {
			if _, err := s.Inspect(ctx, hangs); err == nil {
				t.Error("an answer of a node that is cut off")
			}
		})
	}
	s.shared.queueOf(keyOf(hangs)).awaitPending(t, 10-maxInFlight)
	for range 10 {
		stop, start := leakcheck.Stalls(), time.Now()
		_, err := s.Inspect(t.Context(), other)
		if took := time.Since(start) - stop(); err != nil || took > 200*time.Millisecond {
			t.Errorf("took %s, %v", took, err)
		}
	}
	if ctx.Err() != nil {
		t.Error("the calls took longer than the test allows")
	}
	stuck.Wait()
	network.Heal()
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

// If an earlier copy may have taken effect, the call may have, whatever became of its last copy.
func TestWithEarlierCopy_C_isUnknown(t *testing.T) {
	for _, err := range []error{notSent(io.EOF), io.EOF} {
		if after := WithEarlierCopy(true, err); !mayHaveEffect(after) || !errors.Is(after, io.EOF) {
			t.Errorf("%#v: %#v", err, after)
		}
	}
}
