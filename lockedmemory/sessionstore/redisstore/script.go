package redisstore

import (
	"context"
	_ "embed"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
)

var (
	//go:embed session.lua
	sessionLua string
	//go:embed load.lua
	loadLua string
	//go:embed append.lua
	appendLua string
	//go:embed clear.lua
	clearLua string

	loadScript   = newScript(redislock.BesideLua + sessionLua + loadLua)
	appendScript = newScript(redislock.BesideLua + sessionLua + appendLua)
	clearScript  = newScript(redislock.BesideLua + sessionLua + clearLua)
)

// script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) *script {
	return &script{redis.NewScript(source), source}
}

// inOrder sends commands on the keys of one session, in one exchange if possible. Each has its own
// error. go-redis may send them again, if none is a redislock.Call.
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
	redislock.Pipelined(ctx, client, cmds...)
	return !slices.ContainsFunc(cmds, isElsewhere)
}

// isElsewhere reports whether a node of a Cluster has said that another one is to be asked.
func isElsewhere(cmd redis.Cmder) bool {
	return slices.ContainsFunc([]string{"MOVED", "ASK", "TRYAGAIN"}, func(code string) bool { return redis.HasErrorPrefix(cmd.Err(), code) })
}

// run sends the script, see redislock.Repeat.
func (s *script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (cmd *redis.Cmd) {
	_, err := redislock.Repeat(ctx, client, func() error {
		cmd = s.once(ctx, client, keys, args...)
		return cmd.Err()
	})
	cmd.SetErr(err)
	return cmd
}

// once sends the script once. Its error wraps driver.ErrNotDone if no copy was sent.
func (s *script) once(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	send := func(words []any) *redis.Cmd {
		call := redislock.NewCall(ctx, scriptWord, words...)
		call.SetFirstKeyPos(firstKey)
		_ = client.Process(ctx, call)
		call.SetErr(call.Failure())
		return call.Cmd
	}
	cmd := send(s.byHash(keys, args))
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = send(s.whole(keys, args))
	}
	return cmd
}

func (s *script) byHash(keys []string, args []any) []any {
	return words("evalsha", s.Hash(), keys, args)
}
func (s *script) whole(keys []string, args []any) []any { return words("eval", s.source, keys, args) }

// Where the script, or its hash, stands in a command, and its first key.
const (
	scriptWord = 1
	firstKey   = 3
)

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
