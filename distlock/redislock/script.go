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

// Where the script, or its hash, stands in a command, and its first key.
const (
	scriptWord = 1
	firstKey   = 3
)

// run sends the script, see Repeat. The reply's error wraps driver.ErrNotDone if no copy was sent.
func (s *script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (reply *redis.Cmd, replayed bool) {
	words := s.byHash
	replayed, err := Repeat(ctx, client, func() error {
		cmd := newCall(ctx, words(keys, args...))
		err := process(ctx, client, keys[0], cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			words = s.whole
			cmd = newCall(ctx, words(keys, args...))
			err = process(ctx, client, keys[0], cmd)
		}
		reply = cmd.Cmd
		return err
	})
	if err != nil { // the leader of an exchange may still write to the command
		reply = redis.NewCmd(ctx)
		reply.SetErr(err)
	}
	return reply, replayed
}

func newCall(ctx context.Context, words []any) *Call {
	call := NewCall(ctx, scriptWord, words...)
	call.SetFirstKeyPos(firstKey)
	return call
}

// process makes a call whose first key is given, and returns its error. After an error the leader of an
// exchange may have the command still.
func process(ctx context.Context, client redis.UniversalClient, key string, cmd *Call) error {
	if s, ok := client.(*sharing); ok {
		if x := s.exchange(ctx, key); x != nil {
			return x.process(ctx, cmd)
		}
		client = s.UniversalClient
	}
	_ = client.Process(ctx, cmd)
	return cmd.Failure()
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
