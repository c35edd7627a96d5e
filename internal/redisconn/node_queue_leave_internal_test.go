package redisconn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// soon is how long leavers stay.
const soon = 100 * time.Millisecond

// leavers make contexts that end soon, by the cause in their name.
var leavers = map[string]func() (context.Context, context.CancelFunc, error){
	"cancelled": func() (context.Context, context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(soon, cancel)
		return ctx, cancel, context.Canceled
	},
	"deadline": func() (context.Context, context.CancelFunc, error) {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		return ctx, cancel, context.DeadlineExceeded
	},
}

func TestNodeQueue_leavesBeforeSend_notSent(t *testing.T) {
	for how, leaver := range leavers {
		t.Run(how, func(t *testing.T) {
			s, q, w := patiently(t, onNode(t))
			end := q.occupy(t, s, w)
			replies, errs, wait := q.acquire(t, s, 3)
			ctx, cancel, want := leaver()
			defer cancel()
			stop, start := leakcheck.Stalls(), time.Now()
			_, err := s.Acquire(ctx, acquireOf(3))
			// Half of the limit is for a busy machine.
			late := time.Since(start) - soon - stop()
			if !errors.Is(err, want) || !errors.Is(err, ErrNotDone) || late > 100*time.Millisecond {
				t.Errorf("%v, %s late", err, late)
			}
			end()
			wait()
			for i := range replies {
				if errs[i] != nil || replies[i].Outcome != driver.Granted || replies[i].Replayed {
					t.Errorf("%d: %+v, %v", i, replies[i], errs[i])
				}
			}
			if state, err := s.Inspect(t.Context(), nameOf(3)); err != nil || state.Held {
				t.Errorf("the call was sent: %+v, %v", state, err)
			}
			q.wantIdle(t)
		})
	}
}

func TestNodeQueue_leavesAfterSend_othersAnswered(t *testing.T) {
	for how, leaver := range leavers {
		t.Run(how, func(t *testing.T) {
			s, q, w := patiently(t, onNode(t))
			end := q.occupy(t, s, w)
			replies, errs, wait := q.acquire(t, s, 3)
			ctx, cancel, want := leaver()
			defer cancel()
			stop, start := leakcheck.Stalls(), time.Now()
			left := make(chan error)
			go func() {
				_, err := s.Acquire(ctx, acquireOf(3))
				left <- err
			}()
			q.awaitPending(t, 4)
			release := w.hold() // the pipeline
			end()
			err := <-left
			// Half of the limit is for a busy machine.
			late := time.Since(start) - soon - stop()
			if !errors.Is(err, want) || errors.Is(err, ErrNotDone) || late > 100*time.Millisecond {
				t.Errorf("%v, %s late", err, late)
			}
			time.Sleep(soon) // long after the deadline
			release()
			wait()
			for i := range replies {
				if errs[i] != nil || replies[i].Outcome != driver.Granted || replies[i].Replayed {
					t.Errorf("%d: %+v, %v", i, replies[i], errs[i])
				}
			}
			servers.Await(t, 10*time.Second, "the lock of the leaver", func() bool {
				state, err := s.Inspect(t.Context(), nameOf(3))
				return err == nil && state.Held
			})
			q.wantIdle(t)
		})
	}
}

// A leader that is cancelled before its pipeline is sent still sends the calls of the others. Each
// gets its answer.
func TestNodeQueue_cancelledLeader_othersAnswered(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
	end := q.occupy(t, s, w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var leader sync.WaitGroup
	leader.Go(func() { _, _ = s.Acquire(ctx, acquireOf(3)) })
	q.awaitPending(t, 1) // the first call without a deadline leads
	var others sync.WaitGroup
	for i := range 3 {
		others.Go(func() {
			if reply, err := s.Acquire(context.Background(), acquireOf(i)); err != nil || reply.Outcome != driver.Granted || reply.Replayed {
				t.Errorf("%d: %+v, %v", i, reply, err)
			}
		})
	}
	q.awaitPending(t, 4)
	release := w.hold() // the pipeline
	defer release()
	end() // the next pipeline has all calls
	cancel()
	release()
	others.Wait()
	leader.Wait()
	if commands, pipelines := w.reset(); commands != 0 || !slices.Equal(pipelines, []int{4}) {
		t.Errorf("%d commands and pipelines of %d, want one pipeline of 4", commands, pipelines)
	}
	q.wantIdle(t)
}

// The server answers after the deadline of the first caller. The others get their answers, and no
// call is sent twice.
func TestNodeQueue_lastsToLatestDeadline(t *testing.T) {
	options, proxy := proxied(t)
	s, q, w := patiently(t, options)
	end := q.occupy(t, s, w)
	held := proxy.HoldRequests(faultnet.First(1, faultnet.Containing("holder 0")))
	early, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	left := make(chan error)
	go func() {
		_, err := s.Acquire(early, acquireOf(5))
		left <- err
	}()
	q.awaitPending(t, 1)
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Second+20*time.Second)
			defer cancel()
			reply, err := s.Acquire(ctx, acquireOf(i))
			if err != nil || reply.Outcome != driver.Granted || reply.Replayed {
				t.Errorf("%d: %+v, %v", i, reply, err)
			}
		})
	}
	q.awaitPending(t, 4)
	end()
	if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first caller: %v", err)
	}
	held.Wait(1)
	time.Sleep(5 * answerGrace) // long after the first deadline
	held.Release()
	all.Wait()
	if _, pipelines := w.reset(); !slices.Equal(pipelines, []int{4}) {
		t.Errorf("pipelines of %d, want one of 4", pipelines)
	}
	q.wantIdle(t)
}

// Callers without an answer leave when their contexts end.
func TestNodeQueue_L_callersReturnInTime(t *testing.T) {
	for how, leaver := range leavers {
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
					ctx, cancel, _ := leaver()
					all.Go(func() {
						defer cancel()
						if _, err := s.Acquire(ctx, acquireOf(i)); err == nil {
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
				// Half of the limit is for a busy machine.
				if late := slices.Max(took[:]) - soon - stop(); late > 100*time.Millisecond {
					t.Errorf("%s late", late)
				}
				held.Release()
				end()
				q.wantIdle(t)
				_, pipelines := w.reset()
				shared += len(pipelines)
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
				_, err := l.Inspect(t.Context(), nameOf(0))
				return err
			}
			var all sync.WaitGroup
			begun, closed := make(chan struct{}, 8), make(chan struct{})
			for range cap(begun) {
				all.Go(func() {
					var err error
					for ; err == nil && !isClosed(closed); err = call() {
						select {
						case begun <- struct{}{}:
						default:
						}
					}
					<-closed
					for _, err := range []error{cmp.Or(err, redis.ErrClosed), call()} {
						if !errors.Is(err, redis.ErrClosed) {
							t.Errorf("%s: %v", name, err)
						}
					}
				})
			}
			<-begun
			l.shared.Close()
			close(closed)
			all.Wait()
			if err := call(); !errors.Is(err, ErrNotDone) {
				t.Errorf("%s: after Close: %v", name, err)
			}
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
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

// The client of a Cluster that does not know the nodes yet sends commands one by one. If ctx ends between two
// of them, the first one has taken effect.
func TestSend_C_endsBetween_isUnknown_onCluster(t *testing.T) {
	l := open(t, redis.UniversalOptions{Addrs: servers.SharedTopology("cluster").Addrs()})
	ctx := &endsAfter{t.Context(), redis.NewStatusCmd(t.Context(), "set", t.Name(), "v", "px", 10000)}
	err := l.shared.Send(ctx, t.Name(), ctx.first, redis.NewBoolCmd(ctx, "pexpire", t.Name(), 60000))
	if ctx.Err() == nil || err == nil || !mayHaveEffect(err) {
		t.Errorf("Send: %v, want an unknown outcome; the first command: %v", err, ctx.first)
	}
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
	if err := l.shared.Do(t.Context(), here, redis.NewCmd(t.Context(), "exists", here)); err != nil {
		t.Fatal(err)
	}
	return l, here, there
}

// A slot moves between two commands of a pipeline, and ctx ends. The first command has taken effect.
func TestSend_C_movesBetween_isUnknown_onCluster(t *testing.T) {
	l, here, there := twoNodes(t)
	ctx := &endsAfter{t.Context(), redis.NewStatusCmd(t.Context(), "set", here, "v", "px", 10000)}
	err := l.shared.Send(ctx, here, ctx.first, redis.NewBoolCmd(ctx, "pexpire", there, 60000))
	if ctx.Err() == nil || err == nil || !mayHaveEffect(err) {
		t.Errorf("Send: %v, want an unknown outcome; the first command: %v", err, ctx.first)
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
