package redisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type Script struct {
	*redis.Script
	source string
}

// NewScript makes a script of its source.
func NewScript(source string) *Script { return &Script{redis.NewScript(source), source} }

// Run sends the script, see Repeat. The reply's error wraps driver.ErrNotDone if no copy was sent. The
// first key decides which node of a Cluster runs the script.
func (s *Script) Run(ctx context.Context, t *Transport, keys []string, args ...any) (reply *redis.Cmd, replayed bool) {
	replayed, err := t.Repeat(ctx, func() error {
		var err error
		reply, err = s.Once(ctx, t, keys, args...)
		return err
	})
	if err != nil { // an exchange may still write to the command
		reply = redis.NewCmd(ctx)
		reply.SetErr(err)
	}
	return reply, replayed
}

// Once sends the script once. After an error the reply must not be read. The error wraps
// driver.ErrNotDone if no copy was sent.
func (s *Script) Once(ctx context.Context, t *Transport, keys []string, args ...any) (*redis.Cmd, error) {
	call := s.Call(ctx, false, keys, args...)
	err := t.process(ctx, keys[0], call)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		call = s.Call(ctx, true, keys, args...)
		err = t.process(ctx, keys[0], call)
	}
	return call.Cmd, err
}

// Where the script, or its hash, stands in a command, and its first key.
const (
	scriptWord = 1
	firstKey   = 3
)

// Call is the command that runs the script: the whole script, or its hash.
func (s *Script) Call(ctx context.Context, whole bool, keys []string, args ...any) *Call {
	call := NewCall(ctx, scriptWord, s.words(whole, keys, args)...)
	call.SetFirstKeyPos(firstKey)
	return call
}

func (s *Script) words(whole bool, keys []string, args []any) []any {
	name, script := "evalsha", s.Hash()
	if whole {
		name, script = "eval", s.source
	}
	words := make([]any, 0, firstKey+len(keys)+len(args))
	words = append(words, name, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	return append(words, args...)
}
