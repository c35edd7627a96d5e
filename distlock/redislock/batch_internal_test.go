package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestBatch_C_errorOfOneLock_isItsOwn(t *testing.T) {
	options := onNode(t)
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	ctx := t.Context()
	owners := []string{strings.Repeat("a", 32), strings.Repeat("b", 32), strings.Repeat("c", 32), strings.Repeat("d", 32)}
	locks := []string{"n:{1}:lock", "n:{2}:lock", "n:{3}:lock", "n:{4}:lock"}
	client.RPush(ctx, locks[1], "theirs")
	acquired, err := acquireBatch.Script.Run(
		ctx, client, locks[:3], 30_000+newGrant, owners[0], "{}", owners[1], "{}", owners[2], "{}").Slice()
	if err != nil || len(acquired) != 3 {
		t.Fatal(acquired, err)
	}
	for i, reply := range acquired {
		text, _ := reply.(string)
		if i == 1 && !strings.HasPrefix(text, "-WRONGTYPE ") || i != 1 && len(text) != numbersLen {
			t.Errorf("lock %d: %v", i, reply)
		}
	}
	client.Set(ctx, locks[3], "theirs", 0)
	released, err := releaseBatch.Script.Run(ctx, client, locks, owners[0], owners[1], owners[2], owners[3]).Slice()
	if err != nil || len(released) != 4 || released[0] != "released" || released[2] != "released" {
		t.Fatal(released, err)
	}
	if failed, _ := released[1].(string); !strings.HasPrefix(failed, "-WRONGTYPE ") {
		t.Errorf("%v", released[1])
	}
	if failed, _ := released[3].(string); !strings.HasPrefix(failed, "-FOREIGN ") {
		t.Errorf("%v", released[3])
	}
}

// ⚑ go-redis would take the replies after an error reply for those of other calls. And a busy lock lets no
// lock behind it be granted.
func TestBatch_S1_outOfMemory_keepsRepliesApart(t *testing.T) {
	server := testservers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	owners, locks := []string{strings.Repeat("a", 32), strings.Repeat("b", 32)}, []string{"n:{1}:lock", "n:{2}:lock"}
	held := strings.Repeat("c", 32)
	if err := acquireScript.Script.Eval(t.Context(), client, locks[:1], 30_000+newGrant, held, "{}").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	pipe := client.Pipeline()
	batch := acquireBatch.Script.Eval(t.Context(), pipe, locks, 30_000+newGrant, owners[0], "{}", owners[1], "{}")
	after := pipe.Echo(t.Context(), "another call")
	_, _ = pipe.Exec(t.Context())
	replies, err := batch.Slice()
	if err != nil || len(replies) != 2 || !strings.HasPrefix(fmt.Sprint(replies[1]), "-OOM ") {
		t.Errorf("%v, %v", replies, err)
	}
	if answer, err := after.Result(); answer != "another call" {
		t.Errorf("another call is answered %q, %v", answer, err)
	}
}

// recorded keeps all that clients write to a server.
type recorded struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorded) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &recordedConn{conn, r}, err
}

type recordedConn struct {
	net.Conn
	to *recorded
}

func (c *recordedConn) Write(b []byte) (int, error) {
	c.to.mu.Lock()
	c.to.text.Write(b)
	c.to.mu.Unlock()
	return c.Conn.Write(b)
}

// batchWith reports whether a batch had all of these locks.
func (r *recorded) batchWith(hash string, locks ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, command := range strings.Split(r.text.String(), "\r\neval") {
		all := strings.Contains(command, hash)
		for _, lock := range locks {
			all = all && strings.Contains(command, lock)
		}
		if all {
			return true
		}
	}
	return false
}

// All connections are in use, so calls wait for each other, and share a script.
func TestBatch_O_locksShareAScript(t *testing.T) {
	options, proxy := proxied(t)
	wire := &recorded{}
	direct := options
	direct.Addrs = []string{testservers.SharedServer().Addr()}
	options.PoolSize, options.Dialer = 2, wire.dial
	s, other := open(t, options), open(t, direct)
	if _, err := s.Inspect(t.Context(), driver.Name{Namespace: "n", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	requests := func(try int, what string, n int) []driver.AcquireRequest {
		reqs := make([]driver.AcquireRequest, n)
		for i := range reqs {
			reqs[i] = driver.AcquireRequest{
				Name: driver.Name{Namespace: "n", Key: fmt.Sprintf("%d-%s-%d", try, what, i)}, TTL: time.Minute, Holder: what,
				Owner: fmt.Sprintf("%020x%s%08x", try, what, i), // what has four digits
			}
		}
		return reqs
	}
	// together makes calls while all connections are in use.
	together := func(try, n int, call func(i int)) {
		held := proxy.HoldRequests(faultnet.First(2, faultnet.Containing(inspectScript.Hash())))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _, _ = s.Inspect(context.Background(), driver.Name{Namespace: "n", Key: "k"}) })
		}
		held.Wait(2)
		for i := range n {
			all.Go(func() { call(i) })
		}
		time.Sleep(time.Millisecond << try) // until they wait for a connection; another try has more time
		held.Release()
		all.Wait()
	}
	try := 0
	testservers.Await(t, 20*time.Second, "batches", func() bool {
		try++
		mine, waiters := requests(try, "aaaa", 5), requests(try, "bbbb", 5)
		together(try, len(mine), func(i int) {
			reply, err := s.Acquire(context.Background(), mine[i])
			if err != nil || reply.Outcome != driver.Granted {
				t.Errorf("Acquire %d: %+v, %v", i, reply, err)
			}
			if state, err := other.Inspect(context.Background(), mine[i].Name); err != nil || state.Fence != reply.Fence {
				t.Errorf("lock %d has token %d, not %d: %v", i, state.Fence, reply.Fence, err)
			}
		})
		for i := range 2 { // of which the driver knows one
			waiters[i].Name = mine[i].Name
			waiters[i].Alive, waiters[i].Seq = 30*time.Second, 1
			if reply, err := other.Acquire(t.Context(), waiters[i]); err != nil || reply.Outcome != driver.Busy {
				t.Fatalf("waiter %d: %+v, %v", i, reply, err)
			}
		}
		s.busy.of(mine[0].Name).Store(true)
		cancelled := waiters[4]
		cancelled.Name = mine[4].Name
		together(try, len(mine), func(i int) {
			req := driver.ReleaseRequest{Name: mine[i].Name, Owner: mine[i].Owner}
			if i == 4 {
				req.Owner, req.Tombstone = cancelled.Owner, time.Minute
			}
			reply, err := s.Release(context.Background(), req)
			if err != nil || reply.Released != (i != 4) {
				t.Errorf("Release %d: %+v, %v", i, reply, err)
			}
		})
		for i := range 2 {
			waiters[i].Seq++
			if reply, err := other.Acquire(t.Context(), waiters[i]); err != nil || reply.Outcome != driver.Granted {
				t.Errorf("waiter %d did not get the lock: %+v, %v", i, reply, err)
			}
		}
		if reply, err := s.Acquire(t.Context(), cancelled); err != nil || reply.Outcome != driver.Cancelled {
			t.Errorf("an owner with a tombstone: %+v, %v", reply, err)
		}
		lock := func(i int) string { return keysOf(mine[i].Name).lock() }
		if wire.batchWith(releaseBatch.Hash(), lock(0)) {
			t.Error("a lock that is known to have waiters was released without its queue")
		}
		return t.Failed() || wire.batchWith(acquireBatch.Hash(), lock(0), lock(1)) &&
			wire.batchWith(releaseBatch.Hash(), lock(1), lock(2))
	})
}

// waitedFor makes owner a hold a lock for which owner b waits.
func waitedFor(t *testing.T, s *service) (k keys, a, b driver.AcquireRequest) {
	t.Helper()
	name := driver.Name{Namespace: "n", Key: "waited for"}
	a = driver.AcquireRequest{Name: name, Owner: strings.Repeat("a", 32), TTL: time.Minute}
	b = driver.AcquireRequest{Name: name, Owner: strings.Repeat("b", 32), TTL: time.Minute}
	b.Alive, b.Seq = 30*time.Second, 1
	for _, req := range []driver.AcquireRequest{a, b} {
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	return keysOf(name), a, b
}

// releaseOne is a batch of one lock: it passes no lock on.
var releaseOne = redisconn.NewScript(
	"local key, owner, has_queue, only_releases = KEYS[1], ARGV[1], false, false\n" + lua("release"))

func TestRelease_L_passServesTheQueue(t *testing.T) {
	s := open(t, onNode(t))
	k, a, b := waitedFor(t, s)
	released, replayed, err := s.release(t.Context(), releaseOne, k, a.Owner)
	if err != nil || !released || replayed {
		t.Errorf("released %t, replayed %t, %v", released, replayed, err)
	}
	if rec, err := parseRecord(s.client.Get(t.Context(), k.lock()).Val()); err != nil || rec.owner != b.Owner {
		t.Errorf("the record is %+v, %v", rec, err)
	}
}

// The grant has ended, so an error must not say that nothing was done.
func TestRelease_C_passFails_mayHaveEffect(t *testing.T) {
	server := testservers.StartRedis(t)
	options := redis.UniversalOptions{Addrs: []string{server.Addr()}}
	s := open(t, options)
	k, a, _ := waitedFor(t, s)
	if err := releaseOne.Load(t.Context(), s.client).Err(); err != nil {
		t.Fatal(err)
	}
	// The server does not know the script of the pass, and the user must not send it whole.
	if _, err := server.Do("ACL", "SETUSER", "some", "reset", "on", ">p", "~*", "+@all", "-eval"); err != nil {
		t.Fatal(err)
	}
	options.Username, options.Password = "some", "p"
	released, _, err := open(t, options).release(t.Context(), releaseOne, k, a.Owner)
	if released || !errors.Is(err, driver.ErrRights) || !driver.MayHaveEffect(err) {
		t.Errorf("released %t, %v", released, err)
	}
}

// Where processes take turns, each sends the full scripts at once, and no handoff needs a second round trip.
func TestBusy_L_grantFromTheQueue_isRemembered(t *testing.T) {
	options := onNode(t)
	s, other := open(t, options), open(t, options)
	_, a, b := waitedFor(t, other)
	waits := b
	waits.Owner, waits.Seq = strings.Repeat("c", 32), 1
	if _, err := s.Acquire(t.Context(), waits); err != nil || !s.busy.of(b.Name).Load() {
		t.Errorf("a busy name: %v", err)
	}
	for _, req := range []driver.ReleaseRequest{{Name: a.Name, Owner: a.Owner}, {Name: b.Name, Owner: b.Owner}} {
		if _, err := other.Release(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	waits.Seq++
	reply, err := s.Acquire(t.Context(), waits)
	if err != nil || reply.Outcome != driver.Granted || !s.busy.of(b.Name).Load() {
		t.Errorf("a grant from the queue: %+v, %v", reply, err)
	}
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: waits.Name, Owner: waits.Owner}); err != nil {
		t.Fatal(err)
	}
	a.Owner = strings.Repeat("d", 32)
	if reply, err := s.Acquire(t.Context(), a); err != nil || reply.Outcome != driver.Granted || s.busy.of(b.Name).Load() {
		t.Errorf("a free name: %+v, %v", reply, err)
	}
}
