package redislock

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Call is a command of which go-redis writes one copy. go-redis writes another copy only if a
// server has rejected the first, as a Cluster does to redirect it. So the error of the call is that
// of a single copy. Like Beside, Call is for stores that keep their data on the Redis of their
// locks.
type Call struct {
	*redis.Cmd
	word *noted
}

// NewCall makes a call of the given words. The word at place is a string, and neither the name of the
// command nor a key.
func NewCall(ctx context.Context, place int, words ...any) *Call {
	word := &noted{text: words[place].(string)}
	words[place] = word
	return &Call{redis.NewCmd(ctx, words...), word}
}

// NoRetry is called by go-redis before it sends the command again.
func (c *Call) NoRetry() bool { return c.word.written }

// Failure is the error of the call. It wraps driver.ErrNotDone if go-redis never wrote the command.
func (c *Call) Failure() error {
	if err := c.Err(); err != nil && !c.word.written {
		return notSent(err)
	}
	return c.Err()
}

// Pipelined makes all commands in one exchange. Each has its own error.
func Pipelined(ctx context.Context, client redis.UniversalClient, cmds ...redis.Cmder) {
	pipe := client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds { // ⚑ the error is a hook's, or a reply to the set-up of the connection
			cmd.SetErr(err)
		}
	}
}

// noted is a word of a command. go-redis asks for its bytes each time that it writes the command to
// a connection, and at no other time.
type noted struct {
	text    string
	written bool
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (n *noted) MarshalBinary() ([]byte, error) {
	n.written = true
	return []byte(n.text), nil
}

// String is for hooks of the application, which may log commands.
func (n *noted) String() string { return n.text }

func notSent(err error) error { return &kindError{driver.ErrNotDone, err} }

// firstPause is the upper bound of the pause before the first repetition of a call. The bound doubles
// with each repetition.
const firstPause = 16 * time.Millisecond

// Repeat makes a call by send, and makes it again while the server rejects it for now or the answer is
// lost, as often as the options of the client say. It does not repeat a call that was not sent, because
// go-redis has done so. The result replayed reports whether a copy before the last may have taken
// effect. An error then wraps driver.ErrReplayed.
func Repeat(ctx context.Context, client redis.UniversalClient, send func() error) (replayed bool, err error) {
	for try := 0; ; try++ {
		err = send()
		if err == nil || errors.Is(err, driver.ErrNotDone) || try == repetitions(client) {
			break
		}
		lost := isLost(err)
		if _, kind := kindOf(err, topologyOf(client)); !lost && kind != driver.ErrTemporary {
			break
		}
		wait := rand.N(firstPause << try)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			// ⚑ The caller has to see that the time is up: it may have more time for another call.
			<-ctx.Done()
			break
		}
		if pause(ctx, wait); ctx.Err() != nil {
			break
		}
		replayed = replayed || lost
	}
	return replayed, after(replayed, err)
}

// after is the error of the last copy of a request, if an earlier one may have taken effect.
func after(replayed bool, err error) error {
	if !replayed || err == nil {
		return err
	}
	if last, ok := err.(*kindError); ok && last.kind == driver.ErrNotDone {
		err = last.error
	}
	return &kindError{driver.ErrReplayed, err}
}

// repetitions is how often the options of a client have go-redis send a command again.
func repetitions(client redis.UniversalClient) int {
	switch c := client.(type) {
	case *sharing:
		return repetitions(c.UniversalClient)
	case *redis.Client:
		return c.Options().MaxRetries
	case *redis.ClusterClient:
		return c.Options().MaxRedirects
	}
	return 3 // the default of go-redis
}

// isLost reports whether the connection broke, or its time limit passed, after a copy was written.
func isLost(err error) bool {
	if isDial(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var broken net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken)
}
