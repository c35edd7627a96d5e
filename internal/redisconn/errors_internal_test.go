package redisconn

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// reply is an error that a server has answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// Another copy follows only an error that may pass. A copy that was rejected, or not written, has no
// effect.
func TestFateOf(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{})
	defer client.Close()
	dial := &net.OpError{Op: "dial", Err: io.EOF}
	for _, c := range []struct {
		err           error
		again, effect bool
	}{
		{io.EOF, true, true},
		{&net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}, true, true},
		{notSent(io.EOF), true, false},
		{dial, true, false},
		{reply("LOADING Redis is loading the dataset in memory"), true, false},
		{reply("MOVED 3999 127.0.0.1:6381"), true, false},
		{reply("OOM command not allowed"), false, false},
		{context.DeadlineExceeded, false, false},
		{context.Canceled, false, false},
	} {
		if again, effect := fateOf(client, c.err); again != c.again || effect != c.effect {
			t.Errorf("%v: another copy %t, an effect %t", c.err, again, effect)
		}
	}
}

// The client reloads the nodes of a Cluster if that may help.
func TestReload_ifItMayHelp(t *testing.T) {
	for _, c := range []struct {
		err  error
		anew int32
	}{
		{io.EOF, 1},
		{reply("CLUSTERDOWN The cluster is down"), 1},
		{reply("READONLY You can't write against a read only replica."), 1},
		{reply("OOM command not allowed"), 0},
		{nil, 0},
		{fmt.Errorf("a call: %w", redis.ErrPoolTimeout), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			client := redis.NewClusterClient(&redis.ClusterOptions{
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					asked.Add(1)
					return nil, io.EOF
				},
			})
			defer client.Close()
			reload(client, c.err)
			synctest.Wait()
			if asked.Load() != c.anew {
				t.Errorf("%v: the client has asked %d times, want %d", c.err, asked.Load(), c.anew)
			}
		})
	}
}

// The client reloads the nodes of a Cluster after a round trip that has failed.
func TestNodeQueue_L_failedTrip_reloadsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		client := redis.NewClusterClient(&redis.ClusterOptions{
			MaxRedirects: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF },
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				asked.Add(1)
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
			},
		})
		defer client.Close()
		_ = client.ForEachMaster(t.Context(), func(context.Context, *redis.Client) error { return nil })
		transport := New(client, nil)
		defer transport.Close()
		q := transport.queueOf("k")
		if q.options == nil {
			t.Fatal("the client does not know its nodes")
		}
		before := asked.Load()
		if err := transport.Do(t.Context(), "k", redis.NewCmd(t.Context(), "ping")); err == nil {
			t.Error("the call has not failed")
		}
		synctest.Wait()
		if asked.Load() != before+1 {
			t.Errorf("the client has asked %d times for the nodes, want 1", asked.Load()-before)
		}
		time.Sleep(time.Second) // the client pauses between two loads
	})
}
