package main

import (
	"context"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// SIGTERM: a turn under way is answered. Then the process ends, and the lock is free before its TTL.
func TestService_terminated_drains(t *testing.T) {
	terminate(t, http.StatusOK, "100ms", "-ttl", "30s")
}

// A turn that outlives the grace is ended, and its client is to repeat the message.
func TestService_terminated_turnLongerThanGrace(t *testing.T) {
	terminate(t, http.StatusServiceUnavailable, "500ms", "-ttl", "30s", "-grace", "100ms")
}

// terminate ends the service when the first words of an answer of ten are here.
func terminate(t *testing.T, want int, thinking string, flags ...string) {
	t.Helper()
	lock := servers.SharedRedis(t).URL()
	locker := looker(t, lock)
	p, address := start(t, lock, thinking, flags...)
	status, begun := make(chan int, 1), make(chan struct{})
	go func() {
		first := sync.OnceFunc(func() { close(begun) })
		_, code, err := ask(t, address, "a", "Hello", func() (leaves bool) { first(); return false })
		first()
		if err != nil {
			t.Error(err)
		}
		status <- code
	}()
	<-begun
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-status; code != want {
		t.Errorf("status %d, want %d", code, want)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the process ends with %v", err)
	}
	lease, err := locker.TryAcquire(t.Context(), conversation)
	if err != nil {
		t.Fatalf("the lock is not free after the end: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A message that waits for the turn of another instance is refused at once: no queue delays the exit.
func TestService_terminated_waiterIsRefused(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	locker := looker(t, lock)
	_, holding := start(t, lock, "400ms")
	p, waiting := start(t, lock, "1ms")
	held, waited := make(chan int, 1), make(chan int, 1)
	send := func(address, id string, status chan<- int) {
		_, code, err := ask(t, address, id, "Hello", nil)
		if err != nil {
			t.Error(err)
		}
		status <- code
	}
	go send(holding, "a", held)
	awaitHolder(t, locker, 0)
	go send(waiting, "b", waited)
	awaitHolder(t, locker, 1)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-waited; code != http.StatusServiceUnavailable { // another instance takes it
		t.Errorf("the waiter has the status %d, want 503", code)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the process ends with %v", err)
	}
	select {
	case code := <-held:
		t.Errorf("the exit comes after the running turn, which has the status %d", code)
	default:
	}
	if code := <-held; code != http.StatusOK {
		t.Errorf("the running turn has the status %d, want 200", code)
	}
}

// A refused message leaves nothing behind in the context that lives as long as the service.
func TestService_refusedMessage_leavesNothing(t *testing.T) {
	stopping := &counted{Context: context.Background(), done: make(chan struct{})}
	handler, locker := local(t, stopping)
	if err := locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	status := post(t, handler, "42")
	if status != http.StatusServiceUnavailable || stopping.added != 1 || stopping.added != stopping.removed {
		t.Errorf("status %d; %d functions wait for SIGTERM, and %d of them are removed", status, stopping.added, stopping.removed)
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
