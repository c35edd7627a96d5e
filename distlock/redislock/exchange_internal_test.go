package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/internal/watch"
)

// traffic sees the exchanges of a client with scripts, and can hold them up.
type traffic struct {
	mu        sync.Mutex
	commands  int
	pipelines []int // how many commands each has
	held      chan struct{}
	pipeline  func(redis.ProcessPipelineHook) redis.ProcessPipelineHook
}

func (w *traffic) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			w.mu.Lock()
			w.commands++
			held := w.held
			w.mu.Unlock()
			if held != nil {
				<-held
			}
		}
		return next(ctx, cmd)
	}
}

func (w *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") { // a connection is set up
			return next(ctx, cmds)
		}
		w.mu.Lock()
		w.pipelines = append(w.pipelines, len(cmds))
		held, wrap := w.held, w.pipeline
		w.mu.Unlock()
		if held != nil {
			<-held
		}
		if wrap != nil {
			return wrap(next)(ctx, cmds)
		}
		return next(ctx, cmds)
	}
}

// hold holds up what comes from now on, until the function that it returns is called.
func (w *traffic) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
	return sync.OnceFunc(func() {
		w.mu.Lock()
		if w.held == held {
			w.held = nil
		}
		w.mu.Unlock()
		close(held)
	})
}

// reset forgets what was seen so far, which it returns.
func (w *traffic) reset() (commands int, pipelines []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	commands, pipelines = w.commands, w.pipelines
	w.commands, w.pipelines = 0, nil
	return commands, pipelines
}

// patiently is a service over one node whose calls wait for exchanges to end, however long that takes.
func patiently(t *testing.T, options redis.Options) (*service, *exchange, *traffic) {
	t.Helper()
	if options.Addr == "" {
		options.Addr = testservers.StartRedis(t).Addr()
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	d, err := NewDriver(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	s := d.(*service)
	x := s.shared.(*sharing).one
	x.patience = time.Hour
	for _, script := range []*script{acquireScript, releaseScript, inspectScript} {
		if err := script.Load(t.Context(), client).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w := &traffic{}
	client.AddHook(w)
	return s, x, w
}

// await polls for what must become true soon.
func await(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s", what)
		}
	}
}

func (x *exchange) awaitPending(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d pending", n), func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.pending) == n
	})
}

// occupy has as many exchanges under way as there can be before others wait. The function that it returns ends one, and when
// that has taken all that are pending along, the others.
func (x *exchange) occupy(t *testing.T, s *service, w *traffic) (end func()) {
	t.Helper()
	gate := make(chan struct{})
	w.mu.Lock()
	w.held = gate
	w.mu.Unlock()
	var all sync.WaitGroup
	for range maxAbreast {
		all.Go(func() {
			if _, err := s.Inspect(context.Background(), name); err != nil {
				t.Errorf("Inspect: %v", err)
			}
		})
	}
	await(t, "exchanges under way", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.commands == maxAbreast
	})
	w.reset()
	w.mu.Lock()
	w.held = nil // others pass
	w.mu.Unlock()
	end = sync.OnceFunc(func() {
		gate <- struct{}{}
		x.awaitPending(t, 0)
		close(gate)
		all.Wait()
	})
	t.Cleanup(end)
	return end
}

func nameOf(i int) driver.Name { return driver.Name{Namespace: "n", Key: fmt.Sprint("key ", i)} }

func acquireOf(i int) driver.AcquireRequest {
	return driver.AcquireRequest{Name: nameOf(i), Owner: fmt.Sprintf("%032x", i), TTL: time.Minute, Holder: fmt.Sprint("holder ", i)}
}

// acquire acquires keys 0 to n-1 at the same time, in one exchange that begins when go is called. The results are there when
// wait returns.
func (x *exchange) acquire(t *testing.T, s *service, n int) (replies []driver.AcquireReply, errs []error, wait func()) {
	t.Helper()
	var all sync.WaitGroup
	replies, errs = make([]driver.AcquireReply, n), make([]error, n)
	for i := range n {
		all.Go(func() { replies[i], errs[i] = s.Acquire(context.Background(), acquireOf(i)) })
	}
	x.awaitPending(t, n)
	return replies, errs, all.Wait
}

func (x *exchange) wantIdle(t *testing.T) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.underway != 0 || len(x.pending) != 0 {
		t.Errorf("%d exchanges under way, %d calls pending, want none", x.underway, len(x.pending))
	}
}

func TestExchange_callsThatAreReadyTogetherShareARoundTrip(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	const n = 20
	end := x.occupy(t, s, w)
	replies, errs, wait := x.acquire(t, s, n)
	end()
	wait()
	for i := range n {
		if errs[i] != nil || replies[i].Outcome != driver.Granted || replies[i].Replayed {
			t.Errorf("%d: %+v, %v", i, replies[i], errs[i])
		}
	}
	if commands, pipelines := w.reset(); commands != 0 || !slices.Equal(pipelines, []int{n}) {
		t.Errorf("%d commands and pipelines of %d, want one pipeline of %d", commands, pipelines, n)
	}
	x.wantIdle(t)

	// Each gets the answer to its own question.
	end = x.occupy(t, s, w)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if state, err := s.Inspect(context.Background(), nameOf(i)); err != nil || state.Holder != fmt.Sprint("holder ", i) {
				t.Errorf("%d: %+v, %v", i, state, err)
			}
		})
	}
	x.awaitPending(t, n)
	end()
	all.Wait()
	x.wantIdle(t)
}

func TestExchange_isBounded(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	end := x.occupy(t, s, w)
	_, errs, wait := x.acquire(t, s, maxShared+10)
	end()
	wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	_, pipelines := w.reset()
	if sum := 0; slices.Max(pipelines) != maxShared {
		for _, n := range pipelines {
			sum += n
		}
		t.Errorf("pipelines of %d, together %d", pipelines, sum)
	}
	x.wantIdle(t)
}

// A call on its own is a command on its own, and so are as many as do not wait for each other.
func TestExchange_aLoneCallIsAPlainCommand(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	for i := range 10 {
		if _, err := s.Acquire(t.Context(), acquireOf(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: nameOf(i), Owner: acquireOf(i).Owner}); err != nil {
			t.Fatal(err)
		}
	}
	if commands, pipelines := w.reset(); commands != 20 || len(pipelines) != 0 {
		t.Errorf("%d commands and pipelines of %d, want 20 commands", commands, pipelines)
	}
	end := x.occupy(t, s, w)
	var one sync.WaitGroup
	one.Go(func() { _, _ = s.Inspect(context.Background(), name) })
	x.awaitPending(t, 1)
	end()
	one.Wait()
	if commands, pipelines := w.reset(); commands != 1 || len(pipelines) != 0 {
		t.Errorf("after others: %d commands and pipelines of %d, want 1 command", commands, pipelines)
	}
	x.wantIdle(t)
}

// told is a context that tells a deadline without ending at it.
type told struct {
	context.Context
	deadline time.Time
}

func (c told) Deadline() (time.Time, bool) { return c.deadline, true }

// soon is when leavers leave.
const soon = 100 * time.Millisecond

// leavers make contexts that end soon, each in its way.
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
	"deadline that is only told": func() (context.Context, context.CancelFunc, error) {
		return told{context.Background(), time.Now().Add(soon)}, func() {}, context.DeadlineExceeded
	},
}

func TestExchange_aCallerThatLeavesBeforeItsCallWasSentTakesItBack(t *testing.T) {
	for how, leaver := range leavers {
		t.Run(how, func(t *testing.T) {
			s, x, w := patiently(t, redis.Options{})
			end := x.occupy(t, s, w)
			replies, errs, wait := x.acquire(t, s, 3)
			ctx, cancel, want := leaver()
			defer cancel()
			stop, start := watch.Stalls(), time.Now()
			_, err := s.Acquire(ctx, acquireOf(3))
			if late := time.Since(start) - soon - stop(); !errors.Is(err, want) || late > 50*time.Millisecond {
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
				t.Errorf("sent all the same: %+v, %v", state, err)
			}
			x.wantIdle(t)
		})
	}
}

func TestExchange_aCallerThatLeavesAfterItsCallWasSentHurtsNobody(t *testing.T) {
	for how, leaver := range leavers {
		t.Run(how, func(t *testing.T) {
			s, x, w := patiently(t, redis.Options{})
			end := x.occupy(t, s, w)
			replies, errs, wait := x.acquire(t, s, 3)
			ctx, cancel, want := leaver()
			defer cancel()
			stop, start := watch.Stalls(), time.Now()
			left := make(chan error)
			go func() {
				_, err := s.Acquire(ctx, acquireOf(3))
				left <- err
			}()
			x.awaitPending(t, 4)
			release := w.hold() // the pipeline
			end()
			err := <-left
			if late := time.Since(start) - soon - stop(); !errors.Is(err, want) || late > 50*time.Millisecond {
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
			await(t, "what was sent", func() bool {
				state, err := s.Inspect(t.Context(), nameOf(3))
				return err == nil && state.Held
			})
			x.wantIdle(t)
		})
	}
}

// quiet is a context that does not tell when it ends.
type quiet struct{ context.Context }

func (quiet) Done() <-chan struct{} { return nil }

// Who is told to lead and goes all the same leaves that to another.
func TestExchange_aLeaderThatLeavesIsReplaced(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	for _, silent := range []bool{false, true} { // it learns of the end of its ctx first, or that it is to lead
		end := x.occupy(t, s, w)
		ctx, cancel := context.WithCancel(context.Background())
		if silent {
			ctx = quiet{ctx}
		}
		left := make(chan error)
		go func() {
			_, err := s.Acquire(ctx, acquireOf(0))
			left <- err
		}()
		x.awaitPending(t, 1) // without a deadline the first one leads
		var other sync.WaitGroup
		other.Go(func() {
			if _, err := s.Inspect(context.Background(), name); err != nil {
				t.Errorf("Inspect: %v", err)
			}
		})
		x.awaitPending(t, 2)
		x.mu.Lock()
		x.underway-- // as if another exchange had just ended
		cancel()
		x.appoint(time.Now())
		x.mu.Unlock()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the leader: %v", err)
		}
		other.Wait()
		x.mu.Lock()
		x.underway++
		x.mu.Unlock()
		end()
		x.wantIdle(t)
		if state, err := s.Inspect(t.Context(), nameOf(0)); err != nil || state.Held {
			t.Errorf("sent all the same: %+v, %v", state, err)
		}
		w.reset()
	}
}

// The server does not answer for longer than some of the callers wait. The others get their answers, though a caller in a
// hurry came first, and nothing is sent twice.
func TestExchange_lastsAsLongAsTheMostPatientOfItsCallers(t *testing.T) {
	proxy := faultnet.New(t, testservers.StartRedis(t).Addr())
	s, x, w := patiently(t, redis.Options{Addr: proxy.Addr()})
	end := x.occupy(t, s, w)
	held := proxy.HoldRequests(faultnet.First(1, faultnet.Containing("holder 0")))
	hurried, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	left := make(chan error)
	go func() {
		_, err := s.Acquire(hurried, acquireOf(5))
		left <- err
	}()
	x.awaitPending(t, 1)
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
	x.awaitPending(t, 4)
	end()
	if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one in a hurry: %v", err)
	}
	held.Wait(1)
	held.Release()
	all.Wait()
	if _, pipelines := w.reset(); !slices.Equal(pipelines, []int{4}) {
		t.Errorf("pipelines of %d, want one of 4", pipelines)
	}
	x.wantIdle(t)
}

// Of those whom a server leaves without an answer all are back at their deadlines, also who leads.
func TestExchange_everybodyIsBackInTime(t *testing.T) {
	for how, leaver := range leavers {
		if how == "cancelled" { // which a leader does not notice, as go-redis does not
			continue
		}
		t.Run(how, func(t *testing.T) {
			proxy := faultnet.New(t, testservers.StartRedis(t).Addr())
			s, x, w := patiently(t, redis.Options{Addr: proxy.Addr()})
			shared := 0
			for _, patience := range []time.Duration{time.Hour, 5 * time.Millisecond, time.Millisecond} {
				x.patience = patience
				end := x.occupy(t, s, w)
				held := proxy.HoldRequests(faultnet.Containing("holder"))
				var all sync.WaitGroup
				stop, start := watch.Stalls(), time.Now()
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
					x.awaitPending(t, len(took))
					end()
				}
				all.Wait()
				if late := slices.Max(took[:]) - soon - stop(); late > 50*time.Millisecond {
					t.Errorf("%s late", late)
				}
				held.Release()
				end()
				x.wantIdle(t)
				_, pipelines := w.reset()
				shared += len(pipelines)
			}
			if shared == 0 {
				t.Error("nothing was sent, this tests nothing")
			}
		})
	}
}

// A leader does not wait for the answers of those who came after it was appointed and have more time: they are not taken.
func TestExchange_keepsTheDeadlineOfItsLeader(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	end := x.occupy(t, s, w)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := s.Inspect(ctx, name); err != nil {
			t.Errorf("Inspect: %v", err)
		}
	})
	x.awaitPending(t, 1)
	deadline, _ := ctx.Deadline()
	later := map[string]*call{}
	for who, at := range map[string]time.Time{
		"sooner": deadline.Add(-time.Second), "hardly later": deadline.Add(shareSlack / 2), "later": deadline.Add(time.Second), "never": {},
	} {
		c := x.call()
		c.cmd, c.deadline, c.stage = &counted{Cmd: redis.NewCmd(ctx, inspectScript.byHash([]string{"k"})...)}, at, callPending
		later[who] = c
	}
	x.mu.Lock()
	x.appoint(time.Now())
	for _, c := range later {
		x.pending = append(x.pending, c)
	}
	x.mu.Unlock()
	first.Wait()
	for who, c := range later {
		taken := c.stage == callTaken
		if want := who == "sooner" || who == "hardly later"; taken != want {
			t.Errorf("%s: taken %t", who, taken)
		}
	}
	x.mu.Lock()
	x.pending = nil
	x.mu.Unlock()
	end()
	x.wantIdle(t)
}

// Nobody waits for longer than patience for exchanges to end.
func TestExchange_patienceEnds(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	x.patience = 20 * time.Millisecond
	end := x.occupy(t, s, w)
	for range 3 {
		if _, err := s.Inspect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	end()
	x.wantIdle(t)
}

// A call that was sent while it still had patience is woken up at its deadline.
func TestExchange_aCallThatWasSentKeepsItsDeadline(t *testing.T) {
	x := newExchange(nil)
	c := x.call()
	now := time.Now()
	c.stage, c.deadline = callTaken, now.Add(10*time.Millisecond)
	x.hurry(c, now)
	select {
	case <-c.timer.C:
	case <-time.After(10 * time.Second):
		t.Error("the timer is not set")
	}
}

func TestExchange_anAnswerThatComesInTheMomentOfLeavingCounts(t *testing.T) {
	x := newExchange(nil)
	c := x.call()
	c.stage = callTaken
	if err := x.leave(c, context.Canceled); err != context.Canceled {
		t.Errorf("without an answer: %v", err)
	}
	c.news <- struct{}{}
	if err := x.leave(c, context.Canceled); err != nil {
		t.Errorf("with an answer: %v", err)
	}
}

// On the way to a server that is far away nobody waits for another's round trip.
func TestExchange_aDistantServerDelaysNobodyByAnothersRoundTrip(t *testing.T) {
	proxy := faultnet.New(t, testservers.StartRedis(t).Addr())
	s, x, _ := patiently(t, redis.Options{Addr: proxy.Addr(), PoolSize: 20})
	x.patience = sharePatience
	var all sync.WaitGroup
	for range 10 { // connections
		all.Go(func() { _ = s.client.Ping(t.Context()).Err() })
	}
	all.Wait()
	const trip = 200 * time.Millisecond
	proxy.Latency(trip / 2)
	for i := range 5 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * trip / 10)
			stop, start := watch.Stalls(), time.Now()
			_, err := s.Inspect(t.Context(), name)
			if took := time.Since(start) - stop(); err != nil || took > trip+trip/4 {
				t.Errorf("call %d took %s, %v", i, took, err)
			}
		})
	}
	all.Wait()
	// Those that come together still share.
	began := x.latest
	for i := range 30 {
		all.Go(func() {
			stop, start := watch.Stalls(), time.Now()
			_, err := s.Inspect(t.Context(), name)
			if took := time.Since(start) - stop(); err != nil || took > trip+trip/4 {
				t.Errorf("call %d of those together took %s, %v", i, took, err)
			}
		})
	}
	all.Wait()
	if !x.latest.After(began) {
		t.Error("no exchange")
	}
	x.wantIdle(t)
}

// When the connection breaks before the answers, each call either was sent again, and says so, or has failed.
func TestExchange_lostRepliesLeaveEachCallInDoubt(t *testing.T) {
	for _, retries := range []int{-1, 0} {
		t.Run(fmt.Sprintf("MaxRetries %d", retries), func(t *testing.T) {
			proxy := faultnet.New(t, testservers.StartRedis(t).Addr())
			s, x, w := patiently(t, redis.Options{Addr: proxy.Addr(), MaxRetries: retries})
			const n = 5
			end := x.occupy(t, s, w)
			replies, errs, wait := x.acquire(t, s, n)
			proxy.DropReplies(faultnet.First(1, faultnet.Containing("holder 3")))
			end()
			wait()
			for i := range n {
				if failed := errs[i] != nil; failed != (retries < 0) || !failed && (replies[i].Outcome != driver.Granted || !replies[i].Replayed) {
					t.Errorf("%d: %+v, %v", i, replies[i], errs[i])
				}
				if state, err := s.Inspect(t.Context(), nameOf(i)); i == 3 && (err != nil || !state.Held) {
					t.Errorf("%d was not executed: %+v, %v", i, state, err)
				}
			}
			x.wantIdle(t)
		})
	}
}

func TestExchange_survivesScriptFlush(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
	const n = 10
	end := x.occupy(t, s, w)
	replies, errs, wait := x.acquire(t, s, n)
	if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	end()
	wait()
	for i := range n {
		if errs[i] != nil || replies[i].Outcome != driver.Granted || replies[i].Replayed {
			t.Errorf("%d: %+v, %v", i, replies[i], errs[i])
		}
	}
	x.wantIdle(t)
}

// refusal is what a server answers that cannot serve now.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// go-redis looks at the first answer only when it decides whether to send a pipeline again.
func TestExchange_aCallThatIsTurnedAwayIsSentAgain(t *testing.T) {
	s, x, w := patiently(t, redis.Options{})
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
	end := x.occupy(t, s, w)
	_, _, wait := x.acquire(t, s, 1) // the first of the pipeline
	var all sync.WaitGroup
	for i := 1; i < 4; i++ {
		all.Go(func() {
			reply, err := s.Acquire(context.Background(), acquireOf(i))
			if err != nil || reply.Outcome != driver.Granted || reply.Replayed != (i == 2) {
				t.Errorf("%d: %+v, %v", i, reply, err)
			}
		})
	}
	x.awaitPending(t, 4)
	end()
	wait()
	all.Wait()
	if commands, pipelines := w.reset(); commands != 1 || !slices.Equal(pipelines, []int{4}) {
		t.Errorf("%d commands and pipelines of %d", commands, pipelines)
	}
	x.wantIdle(t)
}

// A hook of the application that refuses or panics fails the calls, and no others.
func TestExchange_survivesHooks(t *testing.T) {
	stop := errors.New("stop")
	for what, hook := range map[string]redis.ProcessPipelineHook{
		"refuses": func(context.Context, []redis.Cmder) error { return stop },
		"panics":  func(context.Context, []redis.Cmder) error { panic(stop) },
	} {
		t.Run(what, func(t *testing.T) {
			s, x, w := patiently(t, redis.Options{})
			w.pipeline = func(redis.ProcessPipelineHook) redis.ProcessPipelineHook { return hook }
			end := x.occupy(t, s, w)
			errs := make(chan error)
			for i := range 4 {
				go func() {
					defer func() {
						if e := recover(); e != nil {
							errs <- e.(error)
						}
					}()
					_, err := s.Acquire(context.Background(), acquireOf(i))
					errs <- err
				}()
			}
			x.awaitPending(t, 4)
			end()
			for range 4 {
				if err := <-errs; !errors.Is(err, stop) && !errors.Is(err, errBroken) {
					t.Errorf("error %v", err)
				}
			}
			x.wantIdle(t)
		})
	}
}

// A node of a Cluster that hangs delays nobody whose key is on another.
func TestExchange_nodesOfAClusterAreApart(t *testing.T) {
	cluster := testservers.StartCluster(t)
	network := faultnet.NewNet(t)
	s, _ := watched(t, redis.UniversalOptions{Addrs: cluster.Addrs(), Dialer: network.Dial, ContextTimeoutEnabled: true}, 20)
	hangs, other := nameOf(0), nameOf(1)
	node := func(of driver.Name) *testservers.Redis { return cluster.MasterOf(keysOf(of).lock()) }
	for i := 2; node(other) == node(hangs); i++ {
		other = nameOf(i)
	}
	for _, name := range []driver.Name{hangs, other} {
		if _, err := s.Inspect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []driver.Name{hangs, other} {
		s.shared.(*sharing).exchange(t.Context(), keysOf(name).lock()).patience = time.Hour
	}
	network.Only(node(hangs).Addr()).Cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var stuck sync.WaitGroup
	for range 10 {
		stuck.Go(func() {
			if _, err := s.Inspect(ctx, hangs); err == nil {
				t.Error("answered by a node that is cut off")
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // they are under way
	for range 10 {
		stop, start := watch.Stalls(), time.Now()
		_, err := s.Inspect(t.Context(), other)
		if took := time.Since(start) - stop(); err != nil || took > 200*time.Millisecond {
			t.Errorf("took %s, %v", took, err)
		}
	}
	if ctx.Err() != nil {
		t.Error("too late to tell")
	}
	stuck.Wait()
	network.Heal()
}

func TestExchange_clusterCallsShare(t *testing.T) {
	cluster := testservers.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer client.Close()
	d, err := NewDriver(client)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, w := d.(*service), &traffic{}
	if _, err := s.Inspect(t.Context(), name); err != nil { // and the server knows the script
		t.Fatal(err)
	}
	client.AddHook(w)
	x := s.shared.(*sharing).exchange(t.Context(), keysOf(name).lock())
	if x != s.shared.(*sharing).exchange(t.Context(), keysOf(name).fence()) {
		t.Error("one node has two exchanges")
	}
	x.patience = time.Hour
	end := x.occupy(t, s, w)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := s.Inspect(context.Background(), name); err != nil {
				t.Errorf("Inspect: %v", err)
			}
		})
	}
	x.awaitPending(t, 10)
	end()
	all.Wait()
	if commands, pipelines := w.reset(); commands != 0 || !slices.Equal(pipelines, []int{10}) {
		t.Errorf("%d commands and pipelines of %d, want one pipeline", commands, pipelines)
	}
	x.wantIdle(t)
}

// Of a client of another type nothing is known about its nodes.
func TestExchange_otherClientsDoNotShare(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	if x := newSharing(struct{ redis.UniversalClient }{client}).exchange(t.Context(), "k"); x != nil {
		t.Error("shared")
	}
}

// Many callers, some of whom leave at any moment: all get an answer or leave, and whoever is granted a lock is its holder.
func TestExchange_hammer(t *testing.T) {
	s, x, _ := patiently(t, redis.Options{PoolSize: 40})
	x.patience = sharePatience
	var all sync.WaitGroup
	stop := time.Now().Add(time.Second)
	for i := range 64 {
		all.Go(func() {
			for n := 0; time.Now().Before(stop); n++ {
				req := acquireOf(i)
				req.Owner = fmt.Sprintf("%016x%016x", i, n)
				ctx, cancel := context.WithCancel(context.Background())
				switch rand.N(4) {
				case 0:
					time.AfterFunc(rand.N(2*time.Millisecond), cancel)
				case 1:
					ctx, cancel = context.WithTimeout(ctx, rand.N(4*time.Millisecond))
				}
				reply, err := s.Acquire(ctx, req)
				cancel()
				if err == nil {
					state, err := s.Inspect(context.Background(), req.Name)
					if reply.Outcome != driver.Granted || err != nil || state.Fence != reply.Fence {
						t.Errorf("%+v, then %+v, %v", reply, state, err)
					}
				}
				// Also what was sent and not waited for.
				if _, err := s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, VoidFor: time.Minute}); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	await(t, "all exchanges to end", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.underway == 0
	})
	x.wantIdle(t)
}
