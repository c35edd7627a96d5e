package redislock

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/redisconn"
)

// reply is an error that a server has answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A Cluster is looked at anew by both clients if that may help.
func TestFailed_asksForTheSlotsAnew(t *testing.T) {
	for _, c := range []struct {
		err  error
		anew int32
	}{
		{io.EOF, 1}, {reply("CLUSTERDOWN The cluster is down"), 1}, {reply("READONLY You can't write against a read only replica."), 1}, {reply("OOM command not allowed"), 0},
		{fmt.Errorf("a call: %w", redis.ErrPoolTimeout), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var first, second atomic.Int32
			clusterThat := func(asked *atomic.Int32) *redis.ClusterClient {
				return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					asked.Add(1)
					return nil, io.EOF
				}})
			}
			s := &service{client: clusterThat(&first), ownClient: clusterThat(&second)}
			defer s.client.Close()
			defer s.ownClient.Close()
			s.shared, s.own = redisconn.New(s.client), redisconn.New(s.ownClient)
			_ = s.failed(c.err)
			synctest.Wait()
			if first.Load() != c.anew || second.Load() != c.anew {
				t.Errorf("%v: the clients have asked %d and %d times, want %d", c.err, first.Load(), second.Load(), c.anew)
			}
		})
	}
}
