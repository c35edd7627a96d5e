package redisconn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func unexplained(err error) error { return err }

// addressed reads messages that are their addressees.
func addressed(message string) (string, driver.Wake, error) {
	if message == "" {
		return "", driver.Wake{}, errors.New("no addressee")
	}
	return message, driver.Wake{Seq: 1}, nil
}

// newWakes are wakes that the test closes, with their client.
func newWakes(t *testing.T, parse func(string) (string, driver.Wake, error), options redis.UniversalOptions) (*Wakes[driver.Wake], redis.UniversalClient) {
	t.Helper()
	client := redis.NewUniversalClient(&options)
	over := New(client, nil)
	n := NewWakes(over, unexplained, parse)
	t.Cleanup(func() {
		n.Close()
		over.Close()
		_ = client.Close()
	})
	return n, client
}

// After a refusal the driver subscribes again, because the right may have been granted since.
func TestWakes_L_rightGranted_listenAgain(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	for _, missing := range []string{"-subscribe", "-publish", "resetchannels"} {
		user := func(rights ...string) {
			t.Helper()
			_, err := server.Do(append([]string{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"}, rights...)...)
			must(t, err)
		}
		user(missing)
		n, _ := newWakes(t, addressed, redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "app", Password: "secret"})
		listen := func() error {
			_, stop, err := n.Listen(t.Context(), "n:wake:x", "owner")
			if err == nil {
				stop()
			}
			return err
		}
		if err := listen(); !n.refuses(err) {
			t.Errorf("%s: %v", missing, err)
		}
		user()
		if err := listen(); err == nil {
			t.Errorf("%s: the server was asked again at once", missing)
		}
		n.mu.Lock()
		if wait := time.Until(n.retry); wait > refusedFor {
			t.Errorf("%s: the server is asked again after %s", missing, wait)
		}
		n.retry = time.Time{} // the wait is over
		n.mu.Unlock()
		servers.Await(t, 5*time.Second, "a subscription without "+missing, func() bool { return listen() == nil })
		n.Close()
		if err := listen(); err == nil {
			t.Error("Listen works after Close")
		}
	}
}

// Each listener of an addressee is notified. A listener that has left is not.
func TestWakes_sharedAddressee(t *testing.T) {
	t.Parallel()
	n, client := newWakes(t, addressed, onNode(t))
	channel := "shared:" + t.Name()
	listen := func(addressee string) (<-chan driver.Wake, func()) {
		t.Helper()
		wakes, stop, err := n.Listen(t.Context(), channel, addressee)
		must(t, err)
		return wakes, stop
	}
	one, stopOne := listen("a")
	left, leave := listen("a")
	two, stopTwo := listen("a")
	other, stopOther := listen("b")
	leave()
	must(t, client.Publish(t.Context(), channel, "a").Err())
	for i, wakes := range []<-chan driver.Wake{one, two} {
		select {
		case wake := <-wakes:
			if wake.Seq != 1 {
				t.Errorf("listener %d received %+v", i, wake)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("listener %d received nothing", i)
		}
	}
	if len(left) > 0 || len(other) > 0 {
		t.Error("a listener that has left, or of another addressee, was notified")
	}
	stopOne()
	stopTwo()
	stopOther()
	if left := n.listeners; len(left) != 0 {
		t.Errorf("listeners are left: %v", left)
	}
}

// A server that hangs while the subscription connects keeps neither a waiter nor Close waiting.
func TestWakes_L_hangingServer_closesAtOnce(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	server.Pause()
	defer server.Resume()
	n, _ := newWakes(t, addressed, redis.UniversalOptions{Addrs: []string{server.Addr()}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := n.Listen(ctx, "n:wake:x", "owner"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	n.mu.Lock()
	if len(n.listeners) != 0 {
		t.Error("the waiter that has left is still registered")
	}
	n.mu.Unlock()
	stop, start := leakcheck.Stalls(), time.Now()
	n.Close()
	if took := time.Since(start) - stop(); took > time.Second {
		t.Errorf("Close took %s", took)
	}
}

// The goroutine of a subscription ends before Close does.
func TestWakes_closeWaits(t *testing.T) {
	t.Parallel()
	reading, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	n, _ := newWakes(t, func(string) (string, driver.Wake, error) {
		close(reading) // at the message that checks the right to publish
		<-release
		ended.Store(true)
		return "", driver.Wake{}, errors.New("no addressee")
	}, onNode(t))
	_, _, err := n.Listen(t.Context(), "closing:"+t.Name(), "owner")
	must(t, err)
	<-reading
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	n.Close()
	if !ended.Load() {
		t.Error("the goroutine of the subscription is left")
	}
}
