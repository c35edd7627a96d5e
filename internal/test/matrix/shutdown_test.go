package matrix

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// recipe is examples/recipes/shutdown as a process of its own, whose answers take longer than any test.
type recipe struct {
	cmd     *exec.Cmd
	url     string
	goesOn  sync.WaitGroup
	answers chan int // the status of each message
}

func startRecipe(t *testing.T, s *service, grace time.Duration) *recipe {
	t.Helper()
	program := filepath.Join(t.TempDir(), "shutdown")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "../../../examples/recipes/shutdown").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := &recipe{
		cmd:     exec.Command(program, "-lock", s.URL(), "-listen", "127.0.0.1:0", "-grace", grace.String(), "-thinking", "1m"),
		answers: make(chan int, 100),
	}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.goesOn.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
			r.url = url
			break
		}
	}
	if r.url == "" {
		t.Fatal("the service does not say where it listens")
	}
	r.goesOn.Go(func() {
		for lines.Scan() { // so that it is never held up by what it says
		}
	})
	return r
}

// post sends a message to each of the conversations.
func (r *recipe) post(t *testing.T, conversations int) {
	for i := range conversations {
		r.goesOn.Go(func() {
			reply, err := http.Post(fmt.Sprintf("%s/conversations/%d", r.url, i), "text/plain", strings.NewReader("Hello"))
			if err != nil {
				t.Errorf("conversation %d: %v", i, err)
				r.answers <- 0
				return
			}
			_ = reply.Body.Close()
			r.answers <- reply.StatusCode
		})
	}
}

// A service is told to end while it holds locks, and while messages wait for some of them. The
// waiters have the locks at once, in their order, long before a TTL has passed. The nodes of a
// quorum keep no order.
func serviceShutDown(t *testing.T, s *service) {
	const conversations, grace = 20, 300 * time.Millisecond
	r := startRecipe(t, s, grace)
	var instances [2]*distlock.Locker
	for i := range instances {
		l, err := newLocker(s.client(t), distlock.Options{Namespace: "chat", Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(context.Background())
		instances[i] = l
	}
	l := instances[0]
	r.post(t, conversations)
	held := func() (n int) {
		for i := range conversations {
			if info, err := l.Inspect(t.Context(), fmt.Sprint(i)); err == nil && info.Held {
				n++
			}
		}
		return n
	}
	if !servers.Within(10*time.Second, func() bool { return held() == conversations }) {
		t.Fatalf("the service holds %d of %d locks", held(), conversations)
	}
	r.post(t, conversations/2) // each waits for the first of its conversation
	// Both of the next instances queue for each conversation, one behind the other.
	var next sync.WaitGroup
	var fences [len(instances)][conversations]int64
	waiters := func(i int) int {
		if s.beside != nil {
			n, _ := strconv.Atoi(mustDo(t, s.Nodes()[0], listeners("chat", fmt.Sprint(i))...))
			return n
		}
		info, err := l.Inspect(t.Context(), fmt.Sprint(i))
		if err != nil {
			return -1
		}
		return info.Waiters
	}
	awaitQueued := func(instances int) {
		for i := range conversations {
			want := instances
			if i < conversations/2 && s.beside == nil { // the service itself waits, in the queue of the server
				want++
			}
			if !servers.Within(10*time.Second, func() bool { return waiters(i) >= want }) {
				t.Fatalf("conversation %d: %d waiters, want %d", i, waiters(i), want)
			}
		}
	}
	for n, instance := range instances {
		awaitQueued(n)
		for i := range conversations {
			next.Go(func() {
				lease, err := instance.Acquire(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Errorf("instance %d, conversation %d: %v", n, i, err)
					return
				}
				fences[n][i] = lease.Fence()
				mustRelease(t, lease)
			})
		}
	}
	awaitQueued(len(instances))
	start := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	next.Wait()
	recovered(t, start, grace+time.Second)
	for i := range conversations {
		if s.beside == nil && fences[0][i] >= fences[1][i] { // a quorum keeps no order
			t.Errorf("conversation %d: the first waiter had the token %d, the second %d", i, fences[0][i], fences[1][i])
		}
	}
	for range conversations + conversations/2 {
		if status := <-r.answers; status != http.StatusServiceUnavailable {
			t.Errorf("a message that was not answered has the status %d", status)
		}
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the service ended with %v", err)
	}
}
