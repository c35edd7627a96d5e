package redislock

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed line.lua
	lineLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed inspect.lua
	inspectLua string

	acquireScript = newScript(lineLua + acquireLua)
	extendScript  = newScript(extendLua)
	releaseScript = newScript(lineLua + releaseLua)
	inspectScript = newScript(inspectLua)
)

// script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) *script { return &script{redis.NewScript(source), source} }

// firstKey is where the first key of a script stands in its command.
const firstKey = 3

// run also reports whether the script may have been sent more than once.
func (s *script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (reply *redis.Cmd, replayed bool) {
	for _, words := range []func([]string, ...any) []any{s.byHash, s.whole} {
		cmd := &counted{Cmd: redis.NewCmd(ctx, words(keys, args...)...)}
		cmd.SetFirstKeyPos(firstKey)
		if err := process(ctx, client, keys[0], cmd); err != nil {
			left := redis.NewCmd(ctx)
			left.SetErr(err)
			return left, true
		}
		reply, replayed = cmd.Cmd, replayed || cmd.asked > 0
		if cmd.Err() == nil || !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			break
		}
	}
	return reply, replayed
}

// process makes a call whose first key is given. An error is that of exchange.process.
func process(ctx context.Context, client redis.UniversalClient, key string, cmd *counted) error {
	if s, ok := client.(*sharing); ok {
		if x := s.exchange(ctx, key); x != nil {
			return x.process(ctx, cmd)
		}
		client = s.UniversalClient
	}
	alone(ctx, client, cmd)
	return nil
}

// byHash is the command that run sends first, whole the one that follows if the server does not know the hash.
func (s *script) byHash(keys []string, args ...any) []any {
	return command("evalsha", s.Hash(), keys, args)
}
func (s *script) whole(keys []string, args ...any) []any {
	return command("eval", s.source, keys, args)
}

func command(name, script string, keys []string, args []any) []any {
	words := make([]any, 0, firstKey+len(keys)+len(args))
	words = append(words, name, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	return append(words, args...)
}

// counted is a command that notices when it is sent again.
type counted struct {
	*redis.Cmd
	asked int
}

// NoRetry is asked by go-redis when it would send the command again, which follows.
func (c *counted) NoRetry() bool {
	c.asked++
	return false
}

// once is a command that go-redis does not send again when its answer is lost.
type once struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }
