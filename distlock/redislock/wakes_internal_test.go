package redislock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/testservers"
)

// After a refusal the driver subscribes again, because the right may have been granted since.
func TestWakes_L_rightGranted_listenAgain(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	for _, missing := range []string{"-subscribe", "-publish", "resetchannels"} {
		user := func(rights ...string) {
			t.Helper()
			if _, err := server.Do(append([]string{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"}, rights...)...); err != nil {
				t.Fatal(err)
			}
		}
		if user(missing); missing == "resetchannels" {
			user("resetchannels")
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
		defer client.Close()
		over := redisconn.New(client)
		defer over.Close()
		w := newWakes(over)
		w.refusedFor = 300 * time.Millisecond
		listen := func() error {
			_, stop, err := w.listen(t.Context(), "n:wake:x", "owner")
			if err == nil {
				stop()
			}
			return err
		}
		start := time.Now()
		if err := listen(); !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "ACL") {
			t.Errorf("%s: %v", missing, err)
		}
		user()
		if err := listen(); err == nil && time.Since(start) < w.refusedFor {
			t.Errorf("%s: the server was asked again after %s", missing, time.Since(start))
		}
		testservers.Await(t, 5*time.Second, "a subscription without "+missing, func() bool { return listen() == nil })
		w.close()
		if err := listen(); err == nil {
			t.Error("Listen works after Close")
		}
	}
}

// Messages are lost while the connection is down. All waiters ask Redis as soon as it is up again.
func TestWakes_L_reconnect_allWaitersAsk(t *testing.T) {
	server := testservers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	over := redisconn.New(client)
	defer over.Close()
	w := newWakes(over)
	defer w.close()
	wakes := make(map[string]<-chan driver.Wake)
	for _, owner := range []string{"a", "b"} {
		wake, stop, err := w.listen(t.Context(), "n:wake:x", owner)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		wakes[owner] = wake
	}
	if killed, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil || killed != "1" {
		t.Fatalf("%s connections were ended, %v, want 1", killed, err)
	}
	for owner, wake := range wakes {
		select {
		case wake, ok := <-wake:
			if !ok || wake.Grant.Outcome == driver.Granted {
				t.Errorf("%s is notified of %+v, %t", owner, wake, ok)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s is not notified", owner)
		}
	}
}

// A waiter can leave at once while the driver connects, and leaves nothing behind.
func TestWakes_C_leaver_leavesNothing(t *testing.T) {
	server := testservers.StartRedis(t)
	server.Pause()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	over := redisconn.New(client)
	defer over.Close()
	w := newWakes(over)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	stop, start := leakcheck.Stalls(), time.Now()
	if _, _, err := w.listen(ctx, "n:wake:x", "owner"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(start) - stop(); took > listenLimit/2 {
		t.Errorf("it left after %s", took)
	}
	if len(w.waiting) != 0 {
		t.Error("the waiter is still registered")
	}
	server.Resume()
	w.close()
}

// Every message is parsed or dropped, without a panic and without an invalid grant.
func FuzzWakes(f *testing.F) {
	owner := strings.Repeat("0f", 16)
	for _, message := range []string{
		owner + ":1:5000:0:1795225289897391:1795225289917391", owner + ":12:1000:999:1795225289897391:1795225289897391", "", ":::::", owner + ":1:5000:0", owner,
		owner + ":9223372036854775807:9223372036854775807:9223372036854775807:9007199254740991:9007199254740991", owner + ":-1:-1:-1:-1:-1",
		owner + ":1:9223372036854775807:0:5:6", owner + ":1:31536000001:0:5:6", owner + ":1:5000:0:6:5", owner + ":1:5000:0:1:9007199254740992",
		owner + ":-1:5000:0:5:6", owner + ":1:-5000:0:5:6", owner + ":1:5000:-1:5:6", owner + ":+1:0x1:1e3:1:1", owner + ":1:5000:0:5:6:payload",
	} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		to, wake, err := parseWake(message)
		if err != nil {
			return
		}
		g := wake.Grant
		if g.Outcome != driver.Granted || g.Fence < 1 || g.FenceEnd < g.Fence || g.FenceEnd > driver.MaxFence || g.Waiters < 0 ||
			wake.Seq < 0 || wake.TTL < 0 || wake.TTL > 366*24*time.Hour || !strings.HasPrefix(message, to+":") {
			t.Errorf("%q is for %q: %+v", message, to, wake)
		}
	})
}
