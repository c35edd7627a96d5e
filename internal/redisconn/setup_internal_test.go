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

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }

// locks makes calls in the way of the lock: each of a script, on one key, in a Cluster too.
type locks struct {
	client redis.UniversalClient
	shared *Transport
}

var (
	takeScript   = NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
	holderScript = NewScript(`return redis.call('GET', KEYS[1]) or ''`)
)

// keyOf is the key of a lock.
func keyOf(lock int) string { return fmt.Sprintf("n:{key %d}", lock) }

// take makes "holder i" the holder of lock i. A call that succeeds was sent once.
func (l *locks) take(ctx context.Context, i int) error {
	cmd, replayed := takeScript.Run(ctx, l.shared, []string{keyOf(i)}, fmt.Sprint("holder ", i))
	if cmd.Err() == nil && replayed {
		return errors.New("sent twice")
	}
	return cmd.Err()
}

// holder is that of a lock, empty for none.
func (l *locks) holder(ctx context.Context, lock int) (string, error) {
	cmd, _ := holderScript.Run(ctx, l.shared, []string{keyOf(lock)})
	return cmd.Text()
}

// mustAnswer fails the test if the server does not say who holds a lock.
func (l *locks) mustAnswer(t *testing.T, lock int) (holder string) {
	t.Helper()
	holder, err := l.holder(t.Context(), lock)
	must(t, err)
	return holder
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onNode are the options of a client of the shared Redis.
func onNode(t *testing.T) redis.UniversalOptions {
	db := servers.SharedRedis(t)
	return redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB(), ContextTimeoutEnabled: true}
}

// proxied is onNode behind a proxy.
func proxied(t *testing.T) (redis.UniversalOptions, *faultnet.Proxy) {
	options := onNode(t)
	proxy := faultnet.New(t, options.Addrs[0])
	options.Addrs[0] = proxy.Addr()
	return options, proxy
}

// open makes locks over a client that the test closes.
func open(t *testing.T, options redis.UniversalOptions) *locks {
	t.Helper()
	client := redis.NewUniversalClient(&options)
	l := &locks{client, New(client, nil)}
	t.Cleanup(func() {
		l.shared.Close()
		_ = client.Close()
	})
	return l
}

// mayHaveEffect is driver.MayHaveEffect for the errors of this package, of a server without a proxy.
func mayHaveEffect(err error) bool {
	if errors.Is(err, ErrNotDone) || IsReply(err) {
		return errors.Is(err, ErrReplayed)
	}
	return err != nil
}

// traffic counts the scripts that a client sends, and can hold them up.
type traffic struct {
	mu        sync.Mutex
	commands  int
	pipelines []int // how many commands each has
	held      chan struct{}
	pipeline  func(cmds []redis.Cmder, send func() error) error // instead of send
}

func (w *traffic) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			w.note(func() { w.commands++ })
		}
		return next(ctx, cmd)
	}
}

func (w *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") { // or a connection is set up
			if w.note(func() { w.pipelines = append(w.pipelines, len(cmds)) }); w.pipeline != nil {
				return w.pipeline(cmds, func() error { return next(ctx, cmds) })
			}
		}
		return next(ctx, cmds)
	}
}

// note counts a request, and holds it up.
func (w *traffic) note(count func()) {
	var held chan struct{}
	w.locked(func() {
		count()
		held = w.held
	})
	if held != nil {
		<-held
	}
}

func (w *traffic) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// want checks the counts, and starts them again.
func (w *traffic) want(t *testing.T, commands int, pipelines ...int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.commands != commands || !slices.Equal(w.pipelines, pipelines) {
		t.Errorf("%d commands and pipelines of %d, want %d and %d", w.commands, w.pipelines, commands, pipelines)
	}
	w.commands, w.pipelines = 0, nil
}

// patiently makes locks on one node whose calls wait for round trips without a limit.
func patiently(t *testing.T, options redis.UniversalOptions) (*locks, *nodeQueue, *traffic) {
	t.Helper()
	s := open(t, options)
	q := s.shared.queueOf(keyOf(9))
	q.patience = time.Hour
	for _, script := range []*Script{takeScript, holderScript} {
		must(t, script.Load(t.Context(), s.client).Err())
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
	w.locked(func() { w.commands, w.held = 0, gate })
	var all sync.WaitGroup
	for range maxInFlight {
		all.Go(func() {
			if _, err := s.holder(context.Background(), 9); err != nil {
				t.Errorf("a round trip: %v", err)
			}
		})
	}
	servers.Await(t, 10*time.Second, "round trips under way", func() (all bool) {
		w.locked(func() { all = w.commands == maxInFlight })
		return all
	})
	w.locked(func() { w.commands, w.held = 0, nil }) // others pass
	end = sync.OnceFunc(func() {
		gate <- struct{}{}
		q.awaitPending(t, 0)
		close(gate)
		all.Wait()
	})
	t.Cleanup(end)
	return end
}

// together takes locks at the same time. When it returns, all below n wait for a round trip. wait waits
// for the results.
func (q *nodeQueue) together(t *testing.T, s *locks, from, n int) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for i := from; i < n; i++ {
		all.Go(func() {
			if err := s.take(context.Background(), i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	q.awaitPending(t, n)
	return all.Wait
}

func (q *nodeQueue) wantIdle(t *testing.T) {
	t.Helper()
	servers.Await(t, 10*time.Second, "no round trip and no pending call", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.inFlight == 0 && len(q.pending) == 0
	})
}
