package redisconn

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// maxBatch bounds the calls of a batch: while a node runs a script, it answers no other client.
const maxBatch = 32

// command is a command of an exchange, and the calls that it makes: a lone call, or a batch. A batch of
// one is sent as a lone call.
type command struct {
	*Call
	calls []*call
}

// alone returns a command for each call.
func alone(calls []*call) []*command {
	commands := make([]*command, len(calls))
	for i := range calls {
		commands[i] = &command{calls[i].cmd, calls[i : i+1]}
	}
	return commands
}

// inBatches returns commands for the calls. Calls of one script are a batch if it has that form, and if
// they have the same shared arguments.
func inBatches(calls []*call) []*command {
	var commands []*command
	for _, c := range calls {
		i := slices.IndexFunc(commands, func(m *command) bool { return m.takes(c) })
		if i < 0 {
			commands = append(commands, &command{c.cmd, []*call{c}})
			continue
		}
		commands[i].calls = append(commands[i].calls, c)
	}
	for _, m := range commands {
		if len(m.calls) > 1 {
			m.Call = batchOf(m.calls)
		}
	}
	return commands
}

// takes reports whether the batch has room for a call.
func (m *command) takes(c *call) bool {
	script := c.cmd.script
	if script == nil || script.batch == nil || script != m.script || len(m.calls) == maxBatch {
		return false
	}
	_, args := c.cmd.keyAndArgs()
	_, first := m.keyAndArgs()
	return slices.Equal(args[:script.shared], first[:script.shared])
}

// batchOf makes one call of the calls.
func batchOf(calls []*call) *Call {
	script := calls[0].cmd.script
	keys := make([]string, len(calls))
	_, args := calls[0].cmd.keyAndArgs()
	args = slices.Clone(args[:script.shared])
	for i, c := range calls {
		key, own := c.cmd.keyAndArgs()
		keys[i] = key
		args = append(args, own[script.shared:]...)
	}
	return script.batch.Call(calls[0].ctx, keys, args...)
}

// again returns what to send after a command that had no effect: the whole script, if the node does not
// have it, or each call of a batch alone, if the node refuses its keys.
func (m *command) again() []*command {
	calls := m.calls
	switch {
	case isNoScript(m):
		m.calls = nil
		return []*command{{m.Whole(), calls}}
	case len(calls) > 1 && redis.HasErrorPrefix(m.Err(), "NOPERM"):
		m.calls = nil
		return alone(calls)
	}
	return nil
}

// answer gives each call of a batch its reply. A batch that failed has the same error for all.
func (m *command) answer() {
	if len(m.calls) < 2 {
		return
	}
	replies, err := m.Slice()
	if m.Err() == nil && (err != nil || len(replies) != len(m.calls)) {
		err = errBatch
	}
	for i, c := range m.calls {
		c.cmd.sent = m.sent // it was written if the batch was
		if err != nil {
			c.cmd.SetErr(err)
		} else if text, ok := replies[i].(string); ok && strings.HasPrefix(text, "-") {
			c.cmd.SetErr(replyError(text[1:]))
		} else {
			c.cmd.SetVal(replies[i])
		}
	}
}

// errBatch has no kind: the outcome of each call is unknown.
var errBatch = errors.New("the server answered a batch of calls in an unknown format: " +
	"use one version of this library in all processes, and no proxy that changes replies")

// replyError is the error of one call of a batch.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}
