package redisconn

import (
	"context"
	"embed"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type Script struct {
	*redis.Script
	source string
	batch  *Script // for several calls; nil: none
	shared int     // how many arguments the calls of a batch have in common
}

// Source joins Lua files, named without ".lua". It panics if a file is missing.
func Source(files embed.FS, names ...string) string {
	var source strings.Builder
	for _, name := range names {
		text, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		source.Write(text)
	}
	return source.String()
}

// NewScript makes a script of its source.
func NewScript(source string) *Script {
	return &Script{Script: redis.NewScript(source), source: source}
}

// WithBatch returns the script with a form for several calls. One node runs calls that share a round trip
// as one batch, if their first arguments, the shared ones, are the same. Shared arguments are
// comparable.
//
// The keys of the batch are the first key of each call. Its arguments are the shared ones, and then the
// others of each call. Its reply has one element for each call: the reply, or the string "-" and the
// text of an error.
//
// ⚑ No element is an error reply. go-redis reads an array up to an error with a code that it knows, as
// OOM. It takes the rest for the replies to other calls.
func (s *Script) WithBatch(batch *Script, shared int) *Script {
	with := *s
	with.batch, with.shared = batch, shared
	return &with
}

// Run sends the script, see Repeat. The reply's error wraps driver.ErrNotDone if no copy was sent. The
// first key decides which node of a Cluster runs the script.
func (s *Script) Run(ctx context.Context, t *Transport, keys []string, args ...any) (reply *redis.Cmd, replayed bool) {
	return s.RunOr(ctx, t, keys, args, nil, nil)
}

// RunOr is Run. While the slot of the keys moves, no node of a Cluster accepts missing keys. RunOr then
// sends the script moving, with the first key alone; nil: none.
func (s *Script) RunOr(ctx context.Context, t *Transport, keys []string, args []any, moving *Script, movingArgs []any,
) (reply *redis.Cmd, replayed bool) {
	replayed, err := t.Repeat(ctx, func() error {
		var err error
		reply, err = s.Once(ctx, t, keys, args...)
		if moving != nil && (redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK")) {
			reply, err = moving.Once(ctx, t, keys[:1], movingArgs...)
		}
		return err
	})
	return replyOf(ctx, reply, err), replayed
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

// Each sends the script once for each key, in one exchange for each node, and waits for all
// replies. args are the arguments for each key. The error of a reply wraps driver.ErrNotDone if no
// copy was sent.
func (s *Script) Each(ctx context.Context, t *Transport, keys []string, args [][]any) []*redis.Cmd {
	nodes := make(map[*exchange][]int)
	for i, key := range keys {
		x := t.exchange(key)
		nodes[x] = append(nodes[x], i)
	}
	replies := make([]*redis.Cmd, len(keys))
	var all sync.WaitGroup
	for x, places := range nodes {
		all.Go(func() {
			// A node that does not know the script gets it with the first call, and runs the others
			// by its hash.
			for whole := false; len(places) > 0; whole = true {
				calls := make([]redis.Cmder, len(places))
				for n, i := range places {
					calls[n] = s.Call(ctx, whole && n == 0, keys[i:i+1], args[i]...)
				}
				failed := x.direct(ctx, calls...)
				var unknown []int
				for n, i := range places {
					call, err := calls[n].(*Call), failed
					if err == nil {
						err = call.Failure()
					}
					if isElsewhere(err) {
						err = t.process(ctx, keys[i], call)
					}
					if redis.HasErrorPrefix(err, "NOSCRIPT") {
						unknown = append(unknown, i)
						continue
					}
					replies[i] = replyOf(ctx, call.Cmd, err)
				}
				places = unknown
			}
		})
	}
	all.Wait()
	return replies
}

// replyOf returns the reply, or another one with the error: an exchange may still write to the
// reply.
func replyOf(ctx context.Context, reply *redis.Cmd, err error) *redis.Cmd {
	if err != nil {
		reply = redis.NewCmd(ctx)
		reply.SetErr(err)
	}
	return reply
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
	if !whole {
		call.script = s
	}
	return call
}

// keyAndArgs returns the first key and the arguments of a call that a script made.
func (c *Call) keyAndArgs() (key string, args []any) {
	words := c.Args()
	return words[firstKey].(string), words[firstKey+words[firstKey-1].(int):]
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
