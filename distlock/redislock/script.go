package redislock

import (
	"context"
	_ "embed"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed inspect.lua
	inspectLua string

	acquireScript = newScript(acquireLua)
	extendScript  = newScript(extendLua)
	releaseScript = newScript(releaseLua)
	inspectScript = newScript(inspectLua)
)

// script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type script struct{ *redis.Script }

func newScript(source string) *script { return &script{redis.NewScript(source)} }

func (s *script) run(ctx context.Context, client redis.Scripter, keys []string, args ...any) *redis.Cmd {
	cmd := s.evalSHA(ctx, client, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return s.eval(ctx, client, keys, args...)
	}
	return cmd
}

func (s *script) evalSHA(ctx context.Context, client redis.Scripter, keys []string, args ...any) *redis.Cmd {
	return s.EvalSha(ctx, client, keys, args...)
}

func (s *script) eval(ctx context.Context, client redis.Scripter, keys []string, args ...any) *redis.Cmd {
	return s.Eval(ctx, client, keys, args...)
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
