package redlock

import (
	"context"
	"embed"
	"fmt"
	"hash/fnv"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/rediskeys"
	"github.com/belugalock/belugalock/internal/rediskinds"
)

// Each file states its keys, arguments and outcomes. lua/record.lua states the reply.
//
//go:embed lua/*.lua
var files embed.FS

func script(names ...string) *redisconn.Script {
	return redisconn.NewScript(redisconn.Source(files, names...))
}

var (
	acquireScript  = script("record", "write", "acquire")
	acquireFreeing = acquireScript.NeedsNoMemory()
	raiseScript    = script("record", "write", "raise")
	extendScript   = script("record", "extend")
	releaseScript  = script("record", "release")
	inspectScript  = script("record", "inspect")
)

// node is one Redis server as a quorum.Node. It keeps one record per name, and a tombstone per
// cancelled owner.
type node struct {
	*uptime
	client     *redis.Client
	ownsClient bool                 // Close closes the client, too
	transport  *redisconn.Transport // over the client
	wakes      *redisconn.Wakes[driver.Wake]
}

func newNode(client *redis.Client, ownsClient bool, up *uptime) *node {
	n := &node{uptime: up, client: client, ownsClient: ownsClient}
	n.transport = redisconn.New(client, func(o *redis.Options) {
		o.OnConnect = up.onConnect(o.OnConnect)
	})
	n.wakes = redisconn.NewWakes(n.transport, n.explain, parseWake)
	return n
}

// prefix begins the keys of a name. The lock has the same key as that of package redislock, so that
// each of the two refuses the records of the other one.
func prefix(name driver.Name) string { return rediskeys.Prefix(name.Namespace, name.Key) }

func lockKey(name driver.Name) string { return prefix(name) + "lock" }

// lockAndTombstone are the key of a name, and the key of the tombstone of an owner.
func lockAndTombstone(name driver.Name, owner string) []string {
	keys := prefix(name)
	return []string{keys + "lock", keys + "tombstone:" + owner}
}

func (n *node) explain(err error) error { return rediskinds.Explain(n.client, "redlock", err) }

// call sends a script once. ⚑ After a repetition a copy may still come, which costs a tombstone for
// each owner that is refused. The quorum decides about repetitions.
func (n *node) call(ctx context.Context, script *redisconn.Script, keys []string, args ...any) (quorum.Reply, error) {
	cmd := script.Once(ctx, n.transport, keys, args...)
	parts, err := cmd.Slice()
	if cmd.Err() != nil {
		return quorum.Reply{}, n.explain(err)
	}
	n.answered()
	return parse(parts)
}

func (n *node) Acquire(ctx context.Context, p quorum.Proposal) (quorum.Reply, error) {
	script := acquireScript
	if p.Frees {
		script = acquireFreeing
	}
	return n.call(ctx, script, lockAndTombstone(p.Name, p.Owner),
		p.Owner, p.TTL.Milliseconds(), fmt.Sprintf("%016d", p.Token), encodePayload(p.Holder, p.Metadata))
}

func (n *node) Raise(ctx context.Context, req driver.RaiseRequest) (quorum.Reply, error) {
	return n.call(ctx, raiseScript, []string{lockKey(req.Name)}, req.Owner, req.Floor)
}

func (n *node) Extend(ctx context.Context, req driver.ExtendRequest) (quorum.Reply, error) {
	return n.call(ctx, extendScript, []string{lockKey(req.Name)}, req.Owner, req.TTL.Milliseconds())
}

func (n *node) Release(ctx context.Context, req driver.ReleaseRequest, quiet bool) (quorum.Reply, error) {
	channel, message := notice(req.Name)
	if quiet {
		message = ""
	}
	return n.call(ctx, releaseScript, lockAndTombstone(req.Name, req.Owner),
		req.Owner, req.Tombstone.Milliseconds(), channel, message)
}

func (n *node) Inspect(ctx context.Context, name driver.Name) (quorum.Reply, error) {
	return n.call(ctx, inspectScript, []string{lockKey(name)})
}

// channels is the number of channels in each namespace. All names share them, so that a process
// subscribes to a channel once, and not for each name.
const channels = 64

// notice returns the channel on which waiters of a name learn that it is free, and the message: a
// hash of the name. Another name with the same hash costs its waiters one request.
func notice(name driver.Name) (channel, message string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(prefix(name)))
	sum := h.Sum64()
	return fmt.Sprintf("%s:free:%02d", name.Namespace, sum%channels), fmt.Sprintf("%016x", sum)
}

// parseWake reads a message of lua/release.lua.
func parseWake(message string) (to string, wake driver.Wake, err error) {
	if message == "" { // Wakes sends it to itself
		err = errReply
	}
	return message, wake, err
}

func (n *node) Listen(ctx context.Context, name driver.Name) (<-chan driver.Wake, func(), error) {
	channel, message := notice(name)
	return n.wakes.Listen(ctx, channel, message)
}

// Close closes the connections of the node. The caller's client stays open.
func (n *node) Close() error {
	n.wakes.Close()
	n.transport.Close()
	if n.ownsClient {
		return n.client.Close()
	}
	return nil
}
