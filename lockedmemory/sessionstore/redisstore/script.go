package redisstore

import (
	"context"
	_ "embed"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
)

var (
	//go:embed store.lua
	storeLua string
	//go:embed show.lua
	showLua string
	//go:embed append.lua
	appendLua string
	//go:embed clear.lua
	clearLua string
	//go:embed instant.lua
	instantLua string
	//go:embed settle.lua
	settleLua string

	showScript    = newScript(redislock.BesideLua + storeLua + showLua)
	appendScript  = newScript(redislock.BesideLua + storeLua + appendLua)
	clearScript   = newScript(redislock.BesideLua + storeLua + clearLua)
	instantScript = newScript(redislock.BesideLua + instantLua)
	settleScript  = newScript(settleLua)
)

// script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) *script {
	return &script{redis.NewScript(source), source}
}

// inOrder sends commands on the keys of one session, in one exchange if that can be; each has its own error. They may be sent more
// than once.
func inOrder(ctx context.Context, client redis.UniversalClient, key string, cmds ...redis.Cmder) {
	if len(cmds) > 1 && pipelined(ctx, client, key, cmds) {
		return
	}
	for _, cmd := range cmds {
		_ = client.Process(ctx, cmd)
	}
}

// pipelined reports whether the commands were answered by the node that they were sent to. A pipeline over all nodes of a Cluster
// will not do: while a slot is being moved, go-redis lets two of them answer a command at the same time.
func pipelined(ctx context.Context, client redis.UniversalClient, key string, cmds []redis.Cmder) bool {
	if c, ok := client.(*redis.ClusterClient); ok {
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return false
		}
		client = node
	}
	pipe := client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
	return !slices.ContainsFunc(cmds, isElsewhere)
}

// isElsewhere reports whether a node of a Cluster has said that another one is to be asked.
func isElsewhere(cmd redis.Cmder) bool {
	return slices.ContainsFunc([]string{"MOVED", "ASK", "TRYAGAIN"}, func(code string) bool { return redis.HasErrorPrefix(cmd.Err(), code) })
}

// run may send the script more than once.
func (s *script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	return s.send(keys, args, func(words []any) *redis.Cmd {
		cmd := command(ctx, words)
		_ = client.Process(ctx, cmd)
		return cmd
	})
}

// once sends it once: an answer that is lost is an error. It reports whether it was sent at all, which it is not if there is no connection.
func (s *script) once(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (cmd *redis.Cmd, sent bool) {
	cmd = s.send(keys, args, func(words []any) *redis.Cmd {
		cmd := &once{Cmd: command(ctx, words)}
		_ = client.Process(ctx, cmd)
		sent = cmd.asked // of the last one: that the server does not know the script is an answer
		return cmd.Cmd
	})
	return cmd, sent
}

func (s *script) send(keys []string, args []any, process func(words []any) *redis.Cmd) *redis.Cmd {
	cmd := process(s.byHash(keys, args))
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = process(s.whole(keys, args))
	}
	return cmd
}

func (s *script) byHash(keys []string, args []any) []any {
	return words("evalsha", s.Hash(), keys, args)
}
func (s *script) whole(keys []string, args []any) []any { return words("eval", s.source, keys, args) }

// firstKey is where the first key stands in a command that calls a script.
const firstKey = 3

func words(name, script string, keys []string, args []any) []any {
	all := make([]any, 0, firstKey+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return append(all, args...)
}

func command(ctx context.Context, words []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}

// once is a command that go-redis does not send again when its answer is lost.
type once struct {
	*redis.Cmd
	asked bool // for what is to be sent
}

// NoRetry is asked by go-redis.
func (*once) NoRetry() bool { return true }

// Args is what go-redis sends. A router or a hook may ask for it too: a command that was not asked is one that was not sent.
func (o *once) Args() []any {
	o.asked = true
	return o.Cmd.Args()
}
