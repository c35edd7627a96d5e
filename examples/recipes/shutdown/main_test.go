package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

func TestShutdown_messageUnderWay_answered(t *testing.T) {
	shutDownDuring(t, "1s", "30s", http.StatusOK)
}

func TestShutdown_messageLongerThanGrace_refused(t *testing.T) {
	shutDownDuring(t, "1m", "100ms", http.StatusServiceUnavailable)
}

// A queue must not delay the exit, and no turn begins during the grace.
func TestShutdown_waiters_refusedAtOnce(t *testing.T) {
	url := servers.SharedRedis(t).URL()
	next, err := lockurl.Open(t.Context(), url, &distlock.Options{Namespace: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close(context.Background()) })
	other := recipetest.Start(t, "-lock", url, "-listen", "127.0.0.1:0", "-thinking", "4s", "-grace", "30s")
	p := recipetest.Start(t, "-lock", url, "-listen", "127.0.0.1:0", "-thinking", "4s", "-grace", "30s")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	held, waiting := make(chan int, 1), make(chan int, 1)
	ask := func(p *recipetest.Process, status chan<- int) {
		conversation := p.Await("listening on ") + "/conversations/42"
		go func() {
			defer close(status)
			response, err := http.Post(conversation, "text/plain", strings.NewReader("Hello"))
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			status <- response.StatusCode
		}()
	}
	ask(other, held)
	servers.Await(t, 30*time.Second, "a service holds the lock", func() bool {
		info, err := next.Inspect(t.Context(), "42")
		return err == nil && info.Held
	})
	ask(p, waiting)
	servers.Await(t, 30*time.Second, "the other service waits", func() bool {
		info, err := next.Inspect(t.Context(), "42")
		return err == nil && info.Waiters == 1
	})
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-waiting; got != http.StatusServiceUnavailable {
		t.Errorf("the waiter has the status %d, want 503", got)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-held:
		t.Errorf("the exit comes after the running turn, which has the status %d", got)
	default:
	}
	if got := <-held; got != http.StatusOK {
		t.Errorf("the running turn has the status %d, want 200", got)
	}
}

// A refused message leaves nothing behind in the context that lives as long as the service.
func TestShutdown_refusedMessage_leavesNothing(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopping := &counted{Context: context.Background(), done: make(chan struct{})}
	w := httptest.NewRecorder()
	answers(stopping, locker, 0).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/conversations/42", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || stopping.added != 1 || stopping.added != stopping.removed {
		t.Errorf("status %d; %d functions wait for SIGTERM, and %d of them are removed", w.Code, stopping.added, stopping.removed)
	}
}

// counted is a context that counts the functions that wait for its end.
type counted struct {
	context.Context
	done           chan struct{}
	added, removed int
}

func (c *counted) Done() <-chan struct{} { return c.done }

func (c *counted) AfterFunc(func()) (stop func() bool) {
	c.added++
	return sync.OnceValue(func() bool { c.removed++; return true })
}

// shutDownDuring ends the service during a message. The lock is free when the process has ended, long
// before the TTL of 30 s.
func shutDownDuring(t *testing.T, thinking, grace string, want int) {
	url := servers.SharedRedis(t).URL()
	next, err := lockurl.Open(t.Context(), url, &distlock.Options{Namespace: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close(context.Background()) })

	p := recipetest.Start(t, "-lock", url, "-listen", "127.0.0.1:0", "-thinking", thinking, "-grace", grace)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	conversation := p.Await("listening on ") + "/conversations/42"
	status := make(chan int, 1)
	go func() {
		defer close(status)
		response, err := http.Post(conversation, "text/plain", strings.NewReader("Hello"))
		if err != nil {
			t.Error(err)
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	p.Await("a turn begins")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-status; got != want {
		t.Errorf("the message has the status %d, want %d", got, want)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	lease, err := next.TryAcquire(t.Context(), "42")
	if err != nil {
		t.Fatalf("the lock is not free after the shutdown: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
