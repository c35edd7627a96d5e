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
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
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
		if cmd.Name() == "evalsha" { // what follows if the server does not know the script is "eval"
			s.n.Add(1)
		}
	}
}

// watched makes a service over a client with poolSize, and with what counts the scripts that go over that one.
func watched(t *testing.T, options redis.UniversalOptions, poolSize int) (*service, *sent) {
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

// occupy keeps a connection of the service's first client busy until the test ends.
func occupy(t *testing.T, s *service, server func(key string) server) {
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
	testservers.Await(t, 10*time.Second, "a busy connection", func() bool {
		clients, _ := server(list).Do("CLIENT", "LIST")
		return strings.Contains(clients, "cmd=blpop")
	})
}

// A pool that the application has used up holds up neither extends nor releases; where it is not, releases go over it.
func TestService_secondClient(t *testing.T) {
	db := testservers.SharedRedis(t)
	secondClient(t, redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB()}, func(string) server { return db })
}

func TestService_secondClient_onCluster(t *testing.T) {
	cluster := testservers.SharedTopology("cluster").Cluster
	secondClient(t, redis.UniversalOptions{Addrs: cluster.Addrs()}, func(key string) server { return cluster.MasterOf(key) })
}

func secondClient(t *testing.T, options redis.UniversalOptions, server func(key string) server) {
	for situation, of := range map[string]struct {
		pool     int
		busy     bool
		releases int32
	}{"idle": {1, false, 1}, "with room": {2, true, 1}, "used up": {1, true, 0}} {
		t.Run(situation, func(t *testing.T) {
			s, first := watched(t, options, of.pool)
			key := keysOf(name).lock()
			if err := s.client.Exists(t.Context(), key).Err(); err != nil { // it has a connection
				t.Fatal(err)
			}
			if of.busy {
				occupy(t, s, server)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s.extend(ctx, []driver.ExtendRequest{{Name: name, Owner: "o", TTL: time.Second}}, make([]driver.ExtendReply, 1), []int{0}, false)
			if n := first.n.Load(); n != 0 {
				t.Errorf("%d extends over the first client", n)
			}
			if _, err := s.Release(ctx, driver.ReleaseRequest{Name: name, Owner: "o", Tombstone: time.Second}); err != nil || first.n.Load() != 0 {
				t.Errorf("a clean-up: %v, %d times over the first client", err, first.n.Load())
			}
			if _, err := s.Release(ctx, driver.ReleaseRequest{Name: name, Owner: "o"}); err != nil || first.n.Load() != of.releases {
				t.Errorf("a release: %v, %d times over the first client, want %d", err, first.n.Load(), of.releases)
			}
		})
	}
}

// Clean-ups leave connections of the second client to renewals.
func TestService_cleanUpsLeaveRoomForRenewals(t *testing.T) {
	options, proxy := proxied(t)
	s, first := watched(t, options, 10)
	release := func() {
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "o", Tombstone: time.Second}); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	release() // the server knows the script
	held := proxy.HoldRequests(faultnet.First(renewalConns/2, faultnet.Containing("evalsha")))
	var under sync.WaitGroup
	for range renewalConns / 2 {
		under.Go(release)
	}
	held.Wait(renewalConns / 2)
	if n := first.n.Load(); n != 0 {
		t.Errorf("%d went over the first client", n)
	}
	release()
	if n := first.n.Load(); n != 1 {
		t.Errorf("%d went over the first client, want the last one", n)
	}
	held.Release()
	under.Wait()
	release()
	if n := first.n.Load(); n != 1 {
		t.Errorf("%d went over the first client though there is room again", n)
	}
}

// Of a client of another type there is no second one.
func TestService_withoutASecondClient(t *testing.T) {
	d, err := NewDriver(struct{ redis.UniversalClient }{open(t, onNode(t)).client})
	if err != nil {
		t.Fatal(err)
	}
	if reply := d.Extend(t.Context(), []driver.ExtendRequest{{Name: name, Owner: "o", TTL: time.Second}}); reply[0].Held || reply[0].Err != nil {
		t.Errorf("Extend: %+v", reply)
	}
	if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "o", Tombstone: time.Second}); err != nil {
		t.Errorf("Release: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// The second client is the driver's, the first its caller's.
func TestService_closesItsOwnClient(t *testing.T) {
	s, _ := watched(t, onNode(t), 1)
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := s.ownClient.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("the second client: %v", err)
	}
	if err := s.client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first client: %v", err)
	}
}

// A client that follows Sentinels is told of a fail-over, the second one is not.
func TestService_extendsFollowFailovers(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	s := newService(client)
	defer s.Close()
	if s.extends() != s.shared {
		t.Error("extends go over the second client")
	}
	client.Options().PoolSize = 0 // used up
	if s.extends() != s.own {
		t.Error("extends go over a client without a free connection")
	}
}

func TestService_C_slotsThatAreNotToldAreAnError(t *testing.T) {
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
