package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// traffic counts the scripts that a client sends, and can hold them up.
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

// hold holds up all scripts until release is called.
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

// reset returns the counts, and starts them again.
func (w *traffic) reset() (commands int, pipelines []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	commands, pipelines = w.commands, w.pipelines
	w.commands, w.pipelines = 0, nil
	return commands, pipelines
}

// patiently makes locks on one node whose calls wait for round trips without a limit.
func patiently(t *testing.T, options redis.UniversalOptions) (*locks, *nodeQueue, *traffic) {
	t.Helper()
	s := open(t, options)
	q := s.shared.queueOf(keyOf(name))
	q.patience = time.Hour
	for _, script := range []*Script{acquireScript, releaseScript, inspectScript} {
		if err := script.Load(t.Context(), s.client).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w := &traffic{}
	q.each(q.options.PoolSize, func(client *redis.Client) { client.AddHook(w) })
	return s, q, w
}

// each takes n connections, new or idle, and calls f for each.
func (q *nodeQueue) each(n int, f func(*redis.Client)) {
	var all sync.WaitGroup
	taken := make([]*conn, n)
	for i := range taken {
		taken[i] = q.take()
		all.Go(func() { f(taken[i].client) })
	}
	all.Wait()
	for _, c := range taken {
		q.put(c, true)
	}
}

func (q *nodeQueue) isPending(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending) == n
}

func (q *nodeQueue) awaitPending(t *testing.T, n int) {
	t.Helper()
	servers.Await(t, 10*time.Second, fmt.Sprintf("%d pending", n), func() bool { return q.isPending(n) })
}

// occupy begins round trips until the next call has to wait. end ends one of them, so that the next
// exchange takes all pending calls, and then the others.
func (q *nodeQueue) occupy(t *testing.T, s *locks, w *traffic) (end func()) {
	t.Helper()
	gate := make(chan struct{})
	w.mu.Lock()
	w.held = gate
	w.mu.Unlock()
	var all sync.WaitGroup
	for range maxInFlight {
		all.Go(func() {
			if _, err := s.Inspect(context.Background(), name); err != nil {
				t.Errorf("Inspect: %v", err)
			}
		})
	}
	servers.Await(t, 10*time.Second, "round trips under way", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.commands == maxInFlight
	})
	w.reset()
	w.mu.Lock()
	w.held = nil // others pass
	w.mu.Unlock()
	end = sync.OnceFunc(func() {
		gate <- struct{}{}
		q.awaitPending(t, 0)
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

// acquire acquires keys 0 to n-1 at the same time, in one round trip. wait waits for the results.
func (q *nodeQueue) acquire(t *testing.T, s *locks, n int) (replies []driver.AcquireReply, errs []error, wait func()) {
	t.Helper()
	var all sync.WaitGroup
	replies, errs = make([]driver.AcquireReply, n), make([]error, n)
	for i := range n {
		all.Go(func() { replies[i], errs[i] = s.Acquire(context.Background(), acquireOf(i)) })
	}
	q.awaitPending(t, n)
	return replies, errs, all.Wait
}

func (q *nodeQueue) wantIdle(t *testing.T) {
	t.Helper()
	servers.Await(t, 10*time.Second, "no round trip and no pending call", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.inFlight == 0 && len(q.pending) == 0
	})
}

func TestNodeQueue_readyCalls_shareARoundTrip(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
	const n = 20
	end := q.occupy(t, s, w)
	replies, errs, wait := q.acquire(t, s, n)
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
	q.wantIdle(t)

	// Each gets the answer to its own question.
	end = q.occupy(t, s, w)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if state, err := s.Inspect(context.Background(), nameOf(i)); err != nil || state.Holder != fmt.Sprint("holder ", i) {
				t.Errorf("%d: %+v, %v", i, state, err)
			}
		})
	}
	q.awaitPending(t, n)
	end()
	all.Wait()
	q.wantIdle(t)
}

func TestNodeQueue_isBounded(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
	end := q.occupy(t, s, w)
	_, errs, wait := q.acquire(t, s, maxShared+10)
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
	q.wantIdle(t)
}

// A lone call is a plain command, also after a round trip.
func TestNodeQueue_loneCall_plainCommand(t *testing.T) {
	s, q, w := patiently(t, onNode(t))
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
	end := q.occupy(t, s, w)
	var one sync.WaitGroup
	one.Go(func() { _, _ = s.Inspect(context.Background(), name) })
	q.awaitPending(t, 1)
	end()
	one.Wait()
	if commands, pipelines := w.reset(); commands != 1 || len(pipelines) != 0 {
		t.Errorf("after others: %d commands and pipelines of %d, want 1 command", commands, pipelines)
	}
	q.wantIdle(t)
}
