package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// Ready calls share a round trip, up to a limit. A lone call is a plain command, also after a round trip.
func TestNodeQueue_readyCalls_shareARoundTrip(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
	const n = 20
	for i := range 10 {
		must(t, s.take(t.Context(), i))
	}
	w.want(t, 10)
	for calls, pipelines := range map[int][]int{1: nil, n: {n}, maxShared + 10: {maxShared, 10}} {
		end := q.occupy(t, s, w)
		wait := q.together(t, s, 0, calls)
		end()
		wait()
		if calls == 1 {
			w.want(t, 1)
		} else {
			w.want(t, 0, pipelines...)
		}
		q.wantIdle(t)
	}

	// Each gets the answer to its own question.
	end := q.occupy(t, s, w)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if holder, err := s.holder(context.Background(), i); err != nil || holder != fmt.Sprint("holder ", i) {
				t.Errorf("%d: %q, %v", i, holder, err)
			}
		})
	}
	q.awaitPending(t, n)
	end()
	all.Wait()
	q.wantIdle(t)
}

// On the way to a distant server, no call waits for the round trip of another call.
func TestNodeQueue_distantServer_noExtraTrip(t *testing.T) {
	options, proxy := proxied(t)
	const together = 30
	options.PoolSize = together
	s, q, _ := patiently(t, options)
	q.patience = sharePatience
	var all sync.WaitGroup
	q.each(together, func(client *redis.Client) { _ = client.Ping(t.Context()).Err() })
	const trip, limit = 200 * time.Millisecond, 300 * time.Millisecond // behind another call: 320 ms
	proxy.Latency(trip / 2)
	timed := func(what string, i int) {
		stop, start := leakcheck.Stalls(), time.Now()
		_, err := s.holder(t.Context(), 9)
		if took := time.Since(start) - stop(); err != nil || took > limit {
			t.Errorf("%s %d took %s, %v", what, i, took, err)
		}
	}
	for i := range 5 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * trip / 10)
			timed("call", i)
		})
	}
	all.Wait()
	// Calls at the same time still share a round trip.
	began := q.latest
	for i := range together {
		all.Go(func() { timed("shared call", i) })
	}
	all.Wait()
	if !q.latest.After(began) {
		t.Error("no round trip")
	}
	q.wantIdle(t)
}

// go-redis repeats a pipeline only for an error of its first command.
func TestNodeQueue_C_rejectedCall_isSentAgain(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
	w.pipeline = func(cmds []redis.Cmder, send func() error) error {
		err := send()
		for _, cmd := range cmds {
			if strings.Contains(fmt.Sprint(cmd.Args()...), "holder 2") {
				cmd.SetErr(reply("TRYAGAIN Multiple keys request during rehashing of slot"))
			}
		}
		return err
	}
	end := q.occupy(t, s, w)
	first := q.together(t, s, 0, 1) // of the pipeline
	others := q.together(t, s, 1, 4)
	end()
	first()
	others()
	w.want(t, 1, 4)
	q.wantIdle(t)
}

// A hook of the application that refuses or panics fails the calls, and no others.
func TestNodeQueue_survivesHooks(t *testing.T) {
	stop := errors.New("stop")
	for what, hook := range map[string]func([]redis.Cmder, func() error) error{
		"refuses": func([]redis.Cmder, func() error) error { return stop },
		"panics":  func([]redis.Cmder, func() error) error { panic(stop) },
	} {
		s, q, w := patiently(t, onNode(t))
		w.pipeline = hook
		end := q.occupy(t, s, w)
		errs := make(chan error)
		for i := range 4 {
			go func() { errs <- s.take(context.Background(), i) }()
		}
		q.awaitPending(t, 4)
		end()
		for range 4 {
			if err := <-errs; !errors.Is(err, stop) && !errors.Is(err, errPanicked) {
				t.Errorf("a hook %s: error %v", what, err)
			}
		}
		q.wantIdle(t)
	}
}

// A node of a Cluster that hangs delays no call for another node.
func TestNodeQueue_clusterNodes_areApart(t *testing.T) {
	cluster := servers.SharedTopology("cluster").Cluster
	network := faultnet.NewNet(t)
	s := open(t, redis.UniversalOptions{Addrs: cluster.Addrs(), Dialer: network.Dial, ContextTimeoutEnabled: true, PoolSize: 20})
	hangs, other := 0, 1
	node := func(of int) *servers.Redis { return cluster.MasterOf(keyOf(of)) }
	for node(other) == node(hangs) {
		other++
	}
	for _, lock := range []int{hangs, other} {
		s.mustAnswer(t, lock)
		q := s.shared.queueOf(keyOf(lock))
		if q.patience = time.Hour; q != s.shared.queueOf(keyOf(lock)+"fence") {
			t.Error("one node has two queues")
		}
	}
	network.Only(node(hangs).Addr()).Cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var stuck sync.WaitGroup
	for range 10 {
		stuck.Go(func() {
			if _, err := s.holder(ctx, hangs); err == nil {
				t.Error("an answer of a node that is cut off")
			}
		})
	}
	s.shared.queueOf(keyOf(hangs)).awaitPending(t, 10-maxInFlight)
	for range 10 {
		stop, start := leakcheck.Stalls(), time.Now()
		_, err := s.holder(t.Context(), other)
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

// soon is how long leavers stay.
const soon = 100 * time.Millisecond

// leaver makes a context that ends soon.
func leaver(how string) (context.Context, context.CancelFunc) {
	if how == "deadline" {
		return context.WithTimeout(context.Background(), soon)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(soon, cancel)
	return ctx, cancel
}

func TestNodeQueue_leavesBeforeSend_notSent(t *testing.T) {
	for _, how := range []string{"cancelled", "deadline"} {
		t.Run(how, func(t *testing.T) {
			s, q, w := patiently(t, onNode(t))
			end := q.occupy(t, s, w)
			wait := q.together(t, s, 0, 3)
			ctx, cancel := leaver(how)
			defer cancel()
			stop, start := leakcheck.Stalls(), time.Now()
			err := s.take(ctx, 3)
			// Half of the limit is for a busy machine.
			late := time.Since(start) - soon - stop()
			if !errors.Is(err, ctx.Err()) || !errors.Is(err, ErrNotDone) || late > 100*time.Millisecond {
				t.Errorf("%v, %s late", err, late)
			}
			end()
			wait()
			if holder := s.mustAnswer(t, 3); holder != "" {
				t.Errorf("the call was sent: %q", holder)
			}
			q.wantIdle(t)
		})
	}
}

// The first caller, which leads, leaves before the server answers. The others get their answers, and no call
// is sent twice.
func TestNodeQueue_leavesAfterSend_othersAnswered(t *testing.T) {
	for how, limit := range map[string]time.Duration{"cancelled": time.Hour, "deadline": 500 * time.Millisecond} {
		t.Run(how, func(t *testing.T) {
			options, proxy := proxied(t)
			s, q, w := patiently(t, options)
			end := q.occupy(t, s, w)
			held := proxy.HoldRequests(faultnet.First(1, faultnet.Containing("holder")))
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			left := make(chan error)
			go func() { left <- s.take(ctx, 3) }()
			q.awaitPending(t, 1)
			var others sync.WaitGroup
			for i := range 3 {
				others.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+i)*time.Second)
					defer cancel()
					if err := s.take(ctx, i); err != nil {
						t.Errorf("%d: %v", i, err)
					}
				})
			}
			q.awaitPending(t, 4)
			end()
			held.Wait(1)
			if how == "cancelled" {
				cancel()
			}
			<-ctx.Done()
			stop, ended := leakcheck.Stalls(), time.Now()
			err := <-left
			if late := time.Since(ended) - stop(); !errors.Is(err, ctx.Err()) || errors.Is(err, ErrNotDone) || late > 100*time.Millisecond {
				t.Errorf("%v, %s late", err, late)
			}
			time.Sleep(5 * answerGrace) // long after the deadline
			held.Release()
			others.Wait()
			w.want(t, 0, 4)
			if s.mustAnswer(t, 3) == "" {
				t.Error("the call of the leaver has no effect")
			}
			q.wantIdle(t)
		})
	}
}

// Callers without an answer leave when their contexts end.
func TestNodeQueue_L_callersReturnInTime(t *testing.T) {
	for _, how := range []string{"cancelled", "deadline"} {
		t.Run(how, func(t *testing.T) {
			options, proxy := proxied(t)
			s, q, w := patiently(t, options)
			shared := 0
			for _, patience := range []time.Duration{time.Hour, 5 * time.Millisecond, time.Millisecond} {
				q.patience = patience
				end := q.occupy(t, s, w)
				held := proxy.HoldRequests(faultnet.Containing("holder"))
				var all sync.WaitGroup
				stop, start := leakcheck.Stalls(), time.Now()
				var took [5]time.Duration
				for i := range took {
					ctx, cancel := leaver(how)
					all.Go(func() {
						defer cancel()
						if err := s.take(ctx, i); err == nil {
							t.Error("there is an answer")
						}
						took[i] = time.Since(start)
					})
				}
				if patience == time.Hour {
					// A caller whose start was late may be there when another has left.
					servers.Within(soon, func() bool { return q.isPending(len(took)) })
					end()
				}
				all.Wait()
				if late := slices.Max(took[:]) - soon - stop(); late > 100*time.Millisecond {
					t.Errorf("%s late", late)
				}
				held.Release()
				end()
				q.wantIdle(t)
				shared += len(w.pipelines)
			}
			if shared == 0 {
				t.Error("no pipeline was sent, so this test is too weak")
			}
		})
	}
}

func TestNodeQueue_answerWhileLeaving_counts(t *testing.T) {
	q := newNodeQueue(nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &request{ctx, nil, make(chan struct{})}
	if err := q.abandon(r); err != context.Canceled {
		t.Errorf("without an answer: %v", err)
	}
	close(r.answered)
	if err := q.abandon(r); err != nil {
		t.Errorf("with an answer: %v", err)
	}
}

func TestConns_failedAreClosed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	transport := New(client, nil)
	defer transport.Close()
	ping := redis.NewCmd(t.Context(), "ping")
	if err := transport.Send(t.Context(), "", ping); err != nil || ping.Err() == nil {
		t.Errorf("%v, %v", err, ping.Err())
	}
	if len(transport.queueOf("").idle) != 0 {
		t.Error("a connection that has failed is kept")
	}
}

// A slow reply costs no connection. A caller that leaves costs the one that it used.
func TestConns_closedByLeaversAlone(t *testing.T) {
	options, proxy := proxied(t)
	options.ClientName = "costs"
	s := open(t, options)
	connections := func() (ids []string) {
		list, err := servers.SharedServer().Do("CLIENT", "LIST")
		must(t, err)
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name=costs ") {
				id, _, _ := strings.Cut(line, " ")
				ids = append(ids, id)
			}
		}
		return ids
	}
	s.mustAnswer(t, 9)
	must(t, s.shared.Send(t.Context(), "", redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "ping")))
	before := connections()
	proxy.Latency(30 * time.Millisecond)
	for range 5 {
		s.mustAnswer(t, 9)
	}
	// A pipeline needs no second connection.
	if after := connections(); len(before) != 1 || len(after) != 1 || after[0] != before[0] {
		t.Errorf("connections %v before slow replies, %v after", before, after)
	}
	proxy.Latency(0)
	held := proxy.HoldRequests(faultnet.First(1, faultnet.Containing("evalsha")))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.holder(ctx, 9)
		left <- err
	}()
	held.Wait(1)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the leaver: %v", err)
	}
	held.Release()
	s.mustAnswer(t, 9)
	servers.Await(t, 10*time.Second, "another connection", func() bool {
		after := connections()
		return len(after) == 1 && after[0] != before[0]
	})
}

// A caller may leave just before a dial ends.
func TestConns_leaverDuringDial_isClosed(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return near, nil },
	})
	defer client.Close()
	c := newConn(client.Options())
	defer c.client.Close()
	c.closeWire()
	wire, err := c.client.Options().Dialer(t.Context(), "tcp", "")
	must(t, err)
	if err := wire.SetDeadline(time.Time{}); err == nil {
		t.Error("the connection is open")
	}
}

// A server that hangs gets no more connections than the pool of the application's client has.
func TestNodeQueue_connectionsAreBounded(t *testing.T) {
	options, proxy := proxied(t)
	options.PoolSize = 4
	s := open(t, options)
	q := s.shared.queueOf(keyOf(9))
	q.patience = time.Millisecond
	s.mustAnswer(t, 9)
	held := proxy.HoldRequests(faultnet.Containing("evalsha"))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
		held.Release()
	}()
	for range 40 {
		all.Go(func() { _, _ = s.holder(ctx, 9) })
		time.Sleep(2 * time.Millisecond)
	}
	servers.Await(t, 10*time.Second, "all connections in use", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.inFlight == 4 && len(q.pending) > 0
	})
}
