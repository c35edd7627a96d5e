package redisconn

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// locks makes calls in the way of the lock: each of a script, on one key, in a Cluster too. It
// keeps no TTL.
type locks struct {
	client redis.UniversalClient
	shared *Transport
}

var (
	acquireScript = NewScript(`
if redis.call('HEXISTS', KEYS[1], 'ended ' .. ARGV[1]) == 1 then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'holder', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'fence', 1)`)
	releaseScript = NewScript(`
redis.call('HSET', KEYS[1], 'ended ' .. ARGV[1], '')
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then
  return redis.call('HDEL', KEYS[1], 'owner', 'holder')
end
return 0`)
	inspectScript = NewScript(`return redis.call('HMGET', KEYS[1], 'holder', 'fence')`)
)

func keyOf(name driver.Name) string { return name.Namespace + ":{" + name.Key + "}" }

func (l *locks) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	cmd, replayed := acquireScript.Run(ctx, l.shared, []string{keyOf(req.Name)}, req.Owner, req.Holder)
	fence, err := cmd.Int64()
	reply := driver.AcquireReply{Outcome: driver.Cancelled, Fence: fence, Replayed: replayed}
	if fence > 0 {
		reply.Outcome = driver.Granted
	}
	return reply, err
}

func (l *locks) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	cmd, replayed := releaseScript.Run(ctx, l.shared, []string{keyOf(req.Name)}, req.Owner)
	ended, err := cmd.Int()
	return driver.ReleaseReply{Released: ended > 0, Replayed: replayed}, err
}

func (l *locks) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	cmd, _ := inspectScript.Run(ctx, l.shared, []string{keyOf(name)})
	var state driver.State
	words, err := cmd.Slice()
	if err == nil && words[0] != nil {
		state.Held, state.Holder = true, words[0].(string)
		state.Fence, err = redis.NewCmdResult(words[1], nil).Int64()
	}
	return state, err
}

// onNode are the options of a client of the shared Redis.
func onNode(t *testing.T) redis.UniversalOptions {
	t.Helper()
	db := servers.SharedRedis(t)
	return redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB(), ContextTimeoutEnabled: true}
}

// proxied is onNode behind a proxy.
func proxied(t *testing.T) (redis.UniversalOptions, *faultnet.Proxy) {
	t.Helper()
	options := onNode(t)
	proxy := faultnet.New(t, options.Addrs[0])
	options.Addrs[0] = proxy.Addr()
	return options, proxy
}

// open makes locks over a client that the test closes.
func open(t *testing.T, options redis.UniversalOptions) *locks {
	t.Helper()
	client := redis.NewUniversalClient(&options)
	l := &locks{client, New(client, nil)}
	t.Cleanup(func() {
		l.shared.Close()
		_ = client.Close()
	})
	return l
}

var name = driver.Name{Namespace: "n", Key: "k"}

// mayHaveEffect is driver.MayHaveEffect for the errors of this package, of a server without a proxy.
func mayHaveEffect(err error) bool {
	if errors.Is(err, ErrNotDone) || IsReply(err) {
		return errors.Is(err, ErrReplayed)
	}
	return err != nil
}
