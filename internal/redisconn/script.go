package redisconn

import (
	"context"
	"embed"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script that is sent by its hash, and whole when the server does not know the hash.
type Script struct {
	*redis.Script
	source        string
	aloneIfMoving bool
}

// Source joins files of the folder lua, named without ".lua". It panics if a file is missing.
func Source(files embed.FS, names ...string) string {
	var source strings.Builder
	for _, name := range names {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		source.Write(text)
	}
	return source.String()
}

// CallsLua defines try, run and result, with which a script calls Redis. A local DONE stands before it.
//
//go:embed calls.lua
var CallsLua string

// NewScript makes a script of its source.
func NewScript(source string) *Script {
	return &Script{Script: redis.NewScript(source), source: source}
}

// NeedsNoMemory returns the script for a server without memory, where Redis checks the first write of a
// script alone. The form begins with a write that needs no memory and changes nothing.
func (s *Script) NeedsNoMemory() *Script {
	with := NewScript("redis.call('GETEX', KEYS[1])\n" + s.source)
	with.aloneIfMoving = s.aloneIfMoving
	return with
}

// FirstKeyAloneIfMoving returns the script for keys whose slot may move. While it moves, no node of a
// Cluster accepts missing keys, and Run sends the script with its first key alone.
func (s *Script) FirstKeyAloneIfMoving() *Script {
	with := *s
	with.aloneIfMoving = true
	return &with
}

// Run sends the script, see Repeat. The reply's error wraps ErrNotDone if no copy was sent. The
// first key decides which node of a Cluster runs the script.
func (s *Script) Run(ctx context.Context, t *Transport, keys []string, args ...any) (reply *redis.Cmd, replayed bool) {
	replayed, err := t.Repeat(ctx, func() error {
		reply = s.Once(ctx, t, keys, args...)
		return reply.Err()
	})
	if err != nil {
		reply.SetErr(err)
	}
	return reply, replayed
}

// Once sends the script once. The reply's error wraps ErrNotDone if it was not sent.
func (s *Script) Once(ctx context.Context, t *Transport, keys []string, args ...any) *redis.Cmd {
	call := s.Command(ctx, keys, args...)
	err := t.Send(ctx, keys[0], call)
	if err == nil {
		err = call.Failure()
	}
	if s.aloneIfMoving && len(keys) > 1 && (redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK")) {
		return s.Once(ctx, t, keys[:1], args...)
	}
	return result(call, err)
}

// Each sends the script once for each of the keys, in one round trip for each node, and waits for all
// replies. args are the arguments for each. The error of a reply wraps ErrNotDone if no copy was
// sent.
func (s *Script) Each(ctx context.Context, t *Transport, keys [][]string, args [][]any) []*redis.Cmd {
	nodes := make(map[*nodeQueue][]int)
	for i := range keys {
		q := t.queueOf(keys[i][0])
		nodes[q] = append(nodes[q], i)
	}
	replies := make([]*redis.Cmd, len(keys))
	var all sync.WaitGroup
	for q, places := range nodes {
		all.Go(func() {
			calls := make([]redis.Cmder, len(places))
			for n, i := range places {
				calls[n] = s.Command(ctx, keys[i], args[i]...)
			}
			failed := q.send(ctx, calls...)
			for n, i := range places {
				call, err := calls[n].(*Call), failed
				if err == nil {
					err = call.Failure()
				}
				if wasNotRun(err) {
					all.Go(func() { replies[i] = s.Once(ctx, t, keys[i], args[i]...) })
					continue
				}
				replies[i] = result(call, err)
			}
		})
	}
	all.Wait()
	return replies
}

// result returns the reply to a call, or another one with the error: a round trip may still write to the
// call.
func result(call *Call, err error) *redis.Cmd {
	if err == nil {
		return call.Cmd
	}
	var reply redis.Cmd
	reply.SetErr(err)
	return &reply
}

// Where the script, or its hash, stands in a command, and its first key.
const (
	scriptWord = 1
	firstKey   = 3
)

// Command runs the script by its hash.
func (s *Script) Command(ctx context.Context, keys []string, args ...any) *Call {
	words := make([]any, 0, firstKey+len(keys)+len(args))
	words = append(words, "evalsha", s.Hash(), len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	call := NewCall(ctx, scriptWord, append(words, args...)...)
	call.SetFirstKeyPos(firstKey)
	call.script = s
	return call
}

// Whole makes the call send the whole script.
func (c *Call) Whole() *Call {
	c.Args()[0], *c.sent = "eval", sentMark{text: c.script.source}
	return c
}

// isNoScript reports whether the node that a call reached does not know its script. It has not run then.
func isNoScript(cmd redis.Cmder) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }

// wholeFrom returns the commands from the first one with an unknown script on, to be sent again. ⚑ All calls
// with an unknown script become whole: a client of another type may send them to several nodes.
func wholeFrom(cmds []redis.Cmder) []redis.Cmder {
	first := slices.IndexFunc(cmds, isNoScript)
	if first < 0 {
		return nil
	}
	for _, cmd := range cmds[first:] {
		if call, ok := cmd.(*Call); ok && call.script != nil && isNoScript(call) {
			call.Whole()
		}
	}
	return cmds[first:]
}
