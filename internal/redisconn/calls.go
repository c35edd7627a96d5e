package redisconn

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is a command of which go-redis writes one copy. go-redis writes another copy only after a
// server has rejected the first one, as a Cluster does to redirect it. So the error is that of a
// single copy.
type Call struct {
	*redis.Cmd
	sent   *sentMark
	script *Script // that the call runs by its hash; nil: none
}

// NewCall makes a call of the given words. The word at markAt is a string, and neither the name of
// the command nor a key.
func NewCall(ctx context.Context, markAt int, words ...any) *Call {
	sent := &sentMark{text: words[markAt].(string)}
	words[markAt] = sent
	return &Call{Cmd: redis.NewCmd(ctx, words...), sent: sent}
}

// NoRetry is called by go-redis before it sends the command again.
func (c *Call) NoRetry() bool { return true }

// Failure is the error of the call. It wraps ErrNotDone if go-redis never wrote the command.
func (c *Call) Failure() error {
	if err := c.Err(); err != nil && !c.sent.written {
		return notSent(err)
	}
	return c.Err()
}

// sentMark is a word of a command. go-redis encodes it only when it writes the command to a connection, so
// it shows whether that has happened.
type sentMark struct {
	text    string
	written bool
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (m *sentMark) MarshalBinary() ([]byte, error) {
	m.written = true
	return []byte(m.text), nil
}

// String is for hooks of the application, which may log commands.
func (m *sentMark) String() string { return m.text }

const (
	// firstPause is the upper bound of the pause before the first repetition of a call. The bound
	// doubles with each repetition.
	firstPause = 16 * time.Millisecond
	// doublings is how often the bound doubles: it is 512 ms then.
	doublings = 5
)

// Repeat makes a call by send, and makes it again while no node accepts it for now or the answer is
// lost, as often as the options of the client say. The result replayed reports whether a copy
// before the last may have taken effect. An error then wraps ErrReplayed.
func (t *Transport) Repeat(ctx context.Context, send func() error) (replayed bool, err error) {
	for try := 0; ; try++ {
		err = send()
		if err == nil || ctx.Err() != nil || try == t.repetitions() {
			break
		}
		again, mayHaveEffect := fateOf(t.client, err)
		if !again {
			break
		}
		wait := rand.N(firstPause << min(try, doublings))
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			// ⚑ The caller has to see that the time is up: it may have more time for another call.
			<-ctx.Done()
			break
		}
		if pause(ctx, wait); ctx.Err() != nil {
			break
		}
		replayed = replayed || mayHaveEffect
	}
	return replayed, WithEarlierCopy(replayed, err)
}

// fateOf reports whether another copy may help after the error of a copy, and whether that copy may have
// taken effect.
func fateOf(client redis.UniversalClient, err error) (again, mayHaveEffect bool) {
	broke := connectionBroke(err)
	return broke || IsDial(err) || IsTemporary(client, err), broke && !errors.Is(err, ErrNotDone)
}

// WithEarlierCopy returns the error of the last copy of a request, or of a later command of it. It wraps
// ErrReplayed if an earlier copy or command may have taken effect.
func WithEarlierCopy(replayed bool, err error) error {
	if !replayed || err == nil {
		return err
	}
	return &factError{err, ErrReplayed}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// repetitions is how often the options of the client have go-redis send a command again.
func (t *Transport) repetitions() int {
	switch c := t.client.(type) {
	case *redis.Client:
		return c.Options().MaxRetries
	case *redis.ClusterClient:
		return c.Options().MaxRedirects
	}
	return 3 // the default of go-redis
}

// connectionBroke reports whether a connection broke after its dial, or its time limit passed.
func connectionBroke(err error) bool {
	if IsDial(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var broken net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken)
}
