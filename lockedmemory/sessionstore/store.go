package sessionstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// Store is a session memory: a lockedmemory.Memory for messages of type M and search results of type D.
// It keeps the Saves of a session in the order of their leases, and refuses stale writers. It writes
// under a lease alone: put lockedmemory.New in front of it. It is safe for concurrent use.
type Store[M, D any] struct {
	driver driver.Driver
	key    lockedmemory.KeyFunc
	codec  Codec[M, D]
	opts   Options
	ops    ops
	leases leases
}

// New makes a Store over a driver, which several stores may share. Backends have a New of their own
// that makes the driver as well, as redisstore.New. It does no I/O. It returns
// distlock.ErrInvalidOption for a nil driver, key or codec, for a codec that stores nothing of a
// message, see [JSON], and for options out of range.
func New[M, D any](d driver.Driver, key lockedmemory.KeyFunc, codec Codec[M, D], opts *Options) (*Store[M, D], error) {
	o, err := opts.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, invalidOption("the driver is nil: make one with redisstore.NewDriver or memstore.NewDriver")
	case key == nil:
		return nil, invalidOption("the KeyFunc is nil: give the one that lockedmemory.New is given")
	case codec == nil:
		return nil, invalidOption("the codec is nil: use sessionstore.JSON for plain structs")
	case storesNothing(codec):
		return nil, invalidOption("%s has only unexported fields, of which JSON stores nothing: "+
			"export them, or give the type a MarshalJSON", reflect.TypeFor[M]())
	}
	return &Store[M, D]{driver: d, key: key, codec: codec, opts: o, ops: ops{prefix: newPrefix()}}, nil
}

// Fenced implements lockedmemory.Fenced: the store refuses writes without a lease.
func (s *Store[M, D]) Fenced() bool { return true }

// AcceptsLocker implements lockedmemory.Selective: it asks the driver.
func (s *Store[M, D]) AcceptsLocker(locker *distlock.Locker) error {
	return s.driver.AcceptsLocker(locker)
}

// Save appends one exchange, as one entry: both messages are stored, next to each other, or none.
//
// In a turn with an ID, see lockedmemory.WithTurnID, the Saves are numbered from 1. Each number is
// stored once, also if its exchange was cleared or trimmed since, for Retention.RememberTurns. A Save
// that has failed keeps its number: repeat it with the same messages. A turn that is repeated under
// its ID goes on after the highest number stored. Without an ID, a Save whose outcome is unknown
// may be stored twice if it is repeated.
//
// It fails, and has written nothing, with distlock.ErrNotHeld if ctx carries no lease, with
// distlock.ErrNotHeld or distlock.ErrLost if the lease has ended and the session has no exchange, with
// a [StaleError], which is distlock.ErrLost, if the store has seen a later holder, with [ErrGone],
// [ErrTurnConflict], [ErrTooLarge], [ErrCodec] or distlock.ErrInvalidKey, with
// distlock.ErrUnavailable if the service does not answer, with distlock.ErrRefused if it refuses,
// and with the error of ctx if that ended before the Save was sent. It fails, and has written
// nothing, with distlock.ErrInvalidOption if the store has seen a token more than a year ahead of
// the lock service's clock. The session's mark may be damaged, or that clock may be wrong.
//
// With distlock.ErrOutcomeUnknown the exchange may have been written, or may be later. The error of
// ctx is joined to that if ctx ended before the answer came.
func (s *Store[M, D]) Save(ctx context.Context, input, output M) error {
	session, lease, err := s.underLease(ctx, opSave)
	if err != nil {
		return err
	}
	content, err := s.encode(input, output)
	if err != nil {
		return err
	}
	turn, named := lockedmemory.TurnID(ctx)
	if named {
		if err := s.number(ctx, turn, &content); err != nil {
			return err
		}
	}
	err = s.write(ctx, opSave, session, lease, func(ctx context.Context, w driver.Write) (driver.Verdict, error) {
		return s.driver.Append(ctx, driver.Append{Write: w, Content: content})
	})
	if named && err == nil {
		turn.Stored(content.Number)
	}
	return err
}

// number gives the content the next number of its turn. A lease guards its Saves, see
// distlock.Lease.Guard: they come one at a time, so no two take the same number.
func (s *Store[M, D]) number(ctx context.Context, turn *lockedmemory.NamedTurn, c *driver.Content) error {
	n, known := turn.Next()
	if !known { // no Load has brought it
		r, err := s.reader(ctx, opNumber)
		if err == nil {
			_, err = r.page(driver.Read{Backward: true}, 1)
		}
		if err != nil {
			return err
		}
		n, _ = turn.Next()
	}
	c.ID, c.Number, c.Digest = turn.ID, n, digest(c.Messages)
	return nil
}

// Clear removes the history. Writers with an older lease cannot undo it. Turn IDs stay known. The
// errors are those of [Store.Save], without [ErrGone], [ErrTurnConflict], [ErrTooLarge] and [ErrCodec].
func (s *Store[M, D]) Clear(ctx context.Context) error {
	session, lease, err := s.underLease(ctx, opClear)
	if err != nil {
		return err
	}
	return s.write(ctx, opClear, session, lease, s.driver.Clear)
}

// write makes a write at the next place under the lease.
func (s *Store[M, D]) write(ctx context.Context, op operation, session string, lease *distlock.Lease,
	do func(context.Context, driver.Write) (driver.Verdict, error)) error {
	id := s.ops.next()
	t := s.leases.of(lease)
	access := driver.Access{Session: session, Lease: lease}
	var w driver.Write
	v, err := under(ctx, op, access, t, func(a driver.Access) func(context.Context) (driver.Verdict, error) {
		w = driver.Write{Access: a, N: t.places.next(), Op: id}
		w := w // a call may outlive the wait for it
		return func(ctx context.Context) (driver.Verdict, error) { return do(ctx, w) }
	})
	if err == nil && v.Outcome == driver.Done && op == opSave {
		t.has(driver.Place{Fence: w.Fence, N: w.N})
	}
	return err
}

// tries bounds how often a call is made again that was refused: with the next place, or with a higher token.
const tries = 5

// under makes a call under a lease, and, if the store refuses its token from the first, asks the lock for a higher one: the store may
// have seen tokens from before the lock service lost its data. Only the lock's owner is given one.
//
// ⚑ What prepare returns may be called twice, see call, and must be the same call each time.
func under[T interface{ Said() driver.Verdict }](ctx context.Context, op operation, a driver.Access, t *leaseState,
	prepare func(driver.Access) func(context.Context) (T, error)) (T, error) {
	for try := 1; ; try++ {
		a, accepted := t.access(a)
		do := prepare(a)
		var reply T
		err := retry(ctx, fencing.Options(fencing.Locker(a.Lease)).TTL, func() (err error) {
			reply, err = call(ctx, do)
			return err
		})
		if err != nil {
			err = failed(ctx, op, err)
			if gone := a.Lease.Err(); errors.Is(gone, distlock.ErrLost) || errors.Is(gone, distlock.ErrNotHeld) {
				err = fmt.Errorf("%w: %w", gone, err)
			}
			return reply, err
		}
		switch v := reply.Said(); v.Outcome {
		case driver.Done:
			t.accept(a.Fence)
			return reply, nil
		case driver.Known:
			return reply, nil
		case driver.Conflict:
			return reply, ErrTurnConflict
		case driver.Gone:
			if ended := context.Cause(a.Lease.Context()); ended != nil { // it counts as one that has read everything
				return reply, fmt.Errorf("sessionstore: %s: %w: the session has no exchange; nothing was written: "+
					"begin a new turn and load the history again", op, ended)
			}
			return reply, fmt.Errorf("%w: it has expired or was deleted since this turn used it; nothing was written: "+
				"begin a new turn and load the history again", ErrGone)
		case driver.Taken: // by another Store, under the same lease
			t.accept(a.Fence)
			t.places.skip(v.Mark.N)
			if try == tries {
				return reply, fmt.Errorf("%w: %s: other stores write under the same lease all the time: use one store in a turn",
					unavailable, op)
			}
		default:
			stale := &StaleError{Fence: a.Fence, Mark: v.Mark.Fence}
			// ⚑ Only another lease can have raised the mark above a token of this lease that the
			// service has accepted. The loaded history is outdated then, even if this lease owns
			// the lock: after a failover, two leases may own it.
			overtaken := v.Outcome == driver.Stale && accepted
			if try == tries || overtaken {
				return reply, stale
			}
			err := fencing.RaiseToken(ctx, a.Lease, max(v.Mark.Fence, a.Fence))
			over := errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrNotHeld) // which ends ctx as well
			if errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrRefused) || err != nil && ctx.Err() != nil && !over {
				return reply, fmt.Errorf("sessionstore: %s: the store refuses the fencing token of the lease, and the lock gives no higher one: %w",
					op, err)
			}
			if errors.Is(err, distlock.ErrInvalidOption) {
				return reply, fmt.Errorf("sessionstore: %s: the store has seen fencing token %d, this lease has %d: %w",
					op, v.Mark.Fence, a.Fence, err)
			}
			if err != nil {
				stale.Cause = err
				return reply, stale
			}
		}
	}
}

// session is the one that the call belongs to.
func (s *Store[M, D]) session(ctx context.Context, op operation) (string, error) {
	key, err := s.key(ctx)
	if err != nil {
		return "", fmt.Errorf("sessionstore: %s: %w: the KeyFunc does not know the session: %w", op, distlock.ErrInvalidKey, err)
	}
	if key == "" {
		return "", fmt.Errorf("sessionstore: %s: %w: the session is empty: put its ID into the context that the KeyFunc reads",
			op, distlock.ErrInvalidKey)
	}
	return key, nil
}

func (s *Store[M, D]) underLease(ctx context.Context, op operation) (string, *distlock.Lease, error) {
	session, err := s.session(ctx, op)
	if err != nil {
		return "", nil, err
	}
	lease, ok := lockedmemory.Lease(ctx)
	switch {
	case !ok:
		return "", nil, fmt.Errorf("sessionstore: %s: %w: the store writes under a lease alone: put lockedmemory.New in front of it",
			op, distlock.ErrNotHeld)
	case lease.Key() != session:
		return "", nil, fmt.Errorf("sessionstore: %s: %w: the lease is for another session: give the store the KeyFunc that lockedmemory.New has",
			op, distlock.ErrNotHeld)
	}
	return session, lease, nil
}

func (s *Store[M, D]) encode(input, output M) (driver.Content, error) {
	var c driver.Content
	for i, message := range []M{input, output} {
		name := [...]string{"input", "output"}[i]
		text, err := s.codec.Encode(message)
		if err != nil {
			return c, fmt.Errorf("%w: encoding the %s; nothing was written: %w", ErrCodec, name, err)
		}
		if len(text) > s.opts.MaxMessage {
			return c, fmt.Errorf("%w: the %s has %d bytes, at most %d are allowed: keep large parts elsewhere and store a reference, "+
				"or raise Options.MaxMessage", ErrTooLarge, name, len(text), s.opts.MaxMessage)
		}
		c.Messages = append(c.Messages, text)
	}
	return c, nil
}

// digest tells contents apart.
func digest(messages [][]byte) string {
	h := sha256.New()
	for _, text := range messages {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ops makes the identities of writes.
type ops struct {
	prefix string // of this store alone
	last   atomic.Uint64
}

func newPrefix() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return hex.EncodeToString(b[:])
}

func (o *ops) next() string { return fmt.Sprintf("%s%016x", o.prefix, o.last.Add(1)) }
