package redislock

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// sent counts the scripts that go over a client.
type sent struct{ n atomic.Int32 }

func (s *sent) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *sent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.count(cmd)
		return next(ctx, cmd)
	}
}
func (s *sent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.count(cmds...)
		return next(ctx, cmds)
	}
}
func (s *sent) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" { // an "eval" follows if the server does not have the script
			s.n.Add(1)
		}
	}
}

// watched makes a service over a client with poolSize. The result sent counts the scripts that the
// client sends.
func watched(t *testing.T, options redis.UniversalOptions, poolSize int) (*lockDriver, *sent) {
	t.Helper()
	options.PoolSize = poolSize
	s, first := open(t, options), &sent{}
	s.client.AddHook(first)
	return s, first
}

var name = driver.Name{Namespace: "n", Key: "k"}

// server is a Redis, or one database.
type server interface {
	Do(args ...string) (string, error)
}

// occupy keeps a connection of the service's client busy until the test ends.
func occupy(t *testing.T, s *lockDriver, server func(key string) server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	list := "list:" + keysOf(name).lock()
	busy.Go(func() { _ = s.client.BLPop(ctx, 0, list).Err() })
	t.Cleanup(func() {
		_, _ = server(list).Do("RPUSH", list, "x")
		busy.Wait()
		cancel()
	})
	servers.Await(t, 10*time.Second, "a busy connection", func() bool {
		clients, _ := server(list).Do("CLIENT", "LIST")
		return strings.Contains(clients, "cmd=blpop")
	})
}

// A pool that the application has used up delays no call.
func TestDriver_N_poolUsedUp(t *testing.T) {
	db := servers.SharedRedis(t)
	poolUsedUp(t, redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB()}, func(string) server { return db })
}

func TestDriver_N_poolUsedUp_onCluster(t *testing.T) {
	cluster := servers.SharedTopology("cluster").Cluster
	poolUsedUp(t, redis.UniversalOptions{Addrs: cluster.Addrs()}, func(key string) server { return cluster.MasterOf(key) })
}

func poolUsedUp(t *testing.T, options redis.UniversalOptions, server func(key string) server) {
	s, first := watched(t, options, 1)
	if err := s.client.Exists(t.Context(), keysOf(name).lock()).Err(); err != nil { // to connect
		t.Fatal(err)
	}
	occupy(t, s, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	owner := strings.Repeat("0", 32)
	if reply, err := s.Acquire(ctx, driver.AcquireRequest{Name: name, Owner: owner, TTL: time.Minute}); err != nil || reply.Outcome != driver.Granted {
		t.Errorf("Acquire: %+v, %v", reply, err)
	}
	if state, err := s.Inspect(ctx, name); err != nil || !state.Held {
		t.Errorf("Inspect: %+v, %v", state, err)
	}
	if _, stop, err := s.Listen(ctx, name, owner); err != nil {
		t.Errorf("Listen: %v", err)
	} else {
		stop()
	}
	extend := driver.ExtendRequest{Name: name, Owner: owner, TTL: time.Minute}
	for i, reply := range s.Extend(ctx, []driver.ExtendRequest{extend, extend, extend}) {
		if !reply.Held || reply.Err != nil {
			t.Errorf("Extend %d: %+v", i, reply)
		}
	}
	if reply, err := s.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner}); err != nil || !reply.Released {
		t.Errorf("Release: %+v, %v", reply, err)
	}
	if n := first.n.Load(); n != 0 {
		t.Errorf("%d scripts over the client of the application", n)
	}
}

// Close closes the driver's connections. The caller's client stays open.
func TestService_closesItsConnections(t *testing.T) {
	options := onNode(t)
	options.ClientName = strings.ReplaceAll(t.Name(), "/", "-")
	s, _ := watched(t, options, 1)
	connections := func() int {
		list, err := servers.SharedServer().Do("CLIENT", "LIST")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(list, "name="+options.ClientName+" ")
	}
	if err := s.client.Ping(t.Context()).Err(); err != nil || connections() != 1 {
		t.Fatalf("%v, %d connections", err, connections())
	}
	if _, err := s.Inspect(t.Context(), name); err != nil || connections() != 2 {
		t.Errorf("after a call: %v, %d connections, want 2", err, connections())
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	servers.Await(t, 10*time.Second, "the end of the driver's connection", func() bool { return connections() == 1 })
	if err := s.client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client: %v", err)
	}
}

func TestService_C_unknownSlots_error(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, io.EOF }, MaxRedirects: -1,
	})
	defer client.Close()
	d, err := NewDriver(client)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "o"}); !errors.Is(err, io.EOF) {
		t.Errorf("Release: %v", err)
	}
}
