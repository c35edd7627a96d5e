package matrix

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// beside is the part of a quorum's service outside its nodes.
type beside struct {
	store        *servers.Redis // of the sessions, outside the quorum
	restartDelay time.Duration  // of the Lockers
}

// allNodesCount is a RestartDelay: servers that have just started count at once.
const allNodesCount = -time.Second

// askedAll returns the highest answer of the nodes, of which each has to answer. A question about a
// session is for the store's server.
func (s *service) askedAll(q question, key string) (highest string, err error) {
	if q.session {
		return s.beside.store.Do(q.redis(key)...)
	}
	ask := q.redis
	if q.node != nil {
		ask = q.node
	}
	for _, node := range s.Nodes() {
		answer, failed := node.Do(ask(key)...)
		highest, err = max(highest, answer), errors.Join(err, failed)
	}
	return highest, err
}

// holding returns how many of the nodes hold the lock on key.
func (s *service) holding(nodes []*servers.Redis, key string) (n int) {
	for _, node := range nodes {
		if held, err := node.Do(isHeld.redis(key)...); err == nil && held == "1" {
			n++
		}
	}
	return n
}

// A record of a quorum states for how many ms it outlives its grant.
const (
	expireRecord = `local r = redis.call('GET', KEYS[1])
return r and redis.call('PEXPIRE', KEYS[1], tonumber(string.sub(r, 85, 95))) or 0`
	endOfGrant = `local r, time = redis.call('GET', KEYS[1]), redis.call('TIME')
local ms = r and redis.call('PTTL', KEYS[1]) - string.sub(r, 85, 95) or 0
return string.format('%.0f', time[1] * 1000000 + time[2] + ms * 1000)`
)

// listeners asks a node how many processes listen for the release of a lock. Some names share a
// channel.
func listeners(namespace, key string) []string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace + ":{" + key + "}:"))
	channel := fmt.Sprintf("%s:free:%02d", namespace, h.Sum64()%64)
	return []string{"EVAL", "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]", "0", channel}
}

// awaitHolding waits until each of the nodes holds the lock on key.
func (s *service) awaitHolding(tb testing.TB, nodes []*servers.Redis, key string) {
	tb.Helper()
	servers.Await(tb, check, fmt.Sprintf("%d nodes hold %s", len(nodes), key), func() bool {
		return s.holding(nodes, key) == len(nodes)
	})
}

// lifetimesOfAll is lifetimes for a quorum: until a quorum of nodes may grant the lock to another
// client. The nodes have the clock of this process, so it does not matter how late they are asked.
func (s *service) lifetimesOfAll(c client) func(ctx context.Context, key string) (time.Duration, error) {
	return func(ctx context.Context, key string) (time.Duration, error) {
		asked := time.Now().UnixMicro()
		lefts, errs := make([]time.Duration, len(c.nodes)), make([]error, len(c.nodes))
		for i, node := range c.nodes {
			var end int64
			end, errs[i] = node.Eval(ctx, endOfGrant, []string{lockKey(key)}).Int64()
			lefts[i] = time.Duration(end-asked) * time.Microsecond
		}
		slices.Sort(lefts)
		return lefts[s.Quorum.Size()-1], errors.Join(errs...)
	}
}
