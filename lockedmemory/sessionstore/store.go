package sessionstore

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Store is a session memory: a lockedmemory.Memory for messages of type M and search results of type D. It
// is safe for concurrent use.
type Store[M, D any] struct {
	driver storedriver.Driver
	key    lockedmemory.KeyFunc
	codec  Codec[M, D]
	opts   Options
}

// New makes a Store over a driver, which several stores may share. It does no I/O. It returns
// distlock.ErrInvalidOption for a nil driver, key or codec, and for options out of range.
func New[M, D any](d storedriver.Driver, key lockedmemory.KeyFunc, codec Codec[M, D], opts *Options) (*Store[M, D], error) {
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
	}
	return &Store[M, D]{driver: d, key: key, codec: codec, opts: o}, nil
}

// AcceptsLocker is for lockedmemory.New: processes that see the sessions have to see the locks.
func (s *Store[M, D]) AcceptsLocker(locker *distlock.Locker) error {
	if !s.driver.AcrossProcesses() || fencing.Driver(locker).Capabilities().AcrossProcesses {
		return nil
	}
	return fmt.Errorf("sessionstore: other processes see the sessions, but not the locks of the backend %q: "+
		"make the Locker for the service of the store, as redislock.New or pglock.New do", fencing.Backend(locker))
}

// Save is [Store.Append] of two messages.
func (s *Store[M, D]) Save(ctx context.Context, input, output M) error {
	return s.Append(ctx, input, output)
}

// Append stores one exchange of 1 to 256 messages, as a question, tool calls, their results, and the
// answer: all of them, next to each other, or none. Further errors: [ErrGone], [ErrTooLarge], [ErrCodec], and
// distlock.ErrInvalidOption without a message, or for a token a year ahead of the lock's clock.
func (s *Store[M, D]) Append(ctx context.Context, messages ...M) error {
	return s.append(ctx, opAppend, nil, nil, messages)
}

// SaveOnce is [Store.Append] under an ID of 1 to 512 bytes: repeated within Retention.RememberIDs, it writes
// nothing, also if its exchange was cleared or trimmed since. Other messages, by the bytes of the Codec, give
// [ErrIDConflict]. Further error: lockedmemory.ErrInvalidID.
func (s *Store[M, D]) SaveOnce(ctx context.Context, id string, messages ...M) error {
	if err := validID(opSaveOnce, id); err != nil {
		return err
	}
	return s.append(ctx, opSaveOnce, []string{id}, nil, messages)
}

// AppendAll is [Store.SaveOnce] under several IDs, for lockedmemory's AnswerAll.
func (s *Store[M, D]) AppendAll(ctx context.Context, ids, superseded []string, messages ...M) error {
	return s.append(ctx, opSaveOnce, ids, superseded, messages)
}

func (s *Store[M, D]) append(ctx context.Context, op operation, ids, superseded []string, messages []M) error {
	r, err := s.request(ctx, op)
	if err != nil {
		return err
	}
	content := storedriver.Content{IDs: ids}
	if content.Messages, err = s.encode(messages); err != nil {
		return err
	}
	if len(ids) > 0 {
		r.id, content.Digest = ids[0], digest(content.Messages)
	}
	return r.underLease(func(w storedriver.Write) (storedriver.Verdict, error) {
		r.seen = []storedriver.Entry{{Place: lockedmemory.Place{Fence: w.Fence, N: w.N}}}
		v, err := s.driver.Append(lastwrite.For(ctx, s), storedriver.Append{Write: w, Content: content, Superseded: superseded})
		for _, id := range superseded {
			if err == nil && v.Outcome == storedriver.Known { // ⚑ the function may have stored its answer itself
				_, err = s.driver.Close(ctx, storedriver.CloseRequest{Session: w.Session, ID: storedriver.HashID(id), Below: w.Fence + 1})
				if err != nil { // ⚑ of no kind: the answer is stored
					err = fmt.Errorf("closing a superseded message: %v", err)
				}
			}
		}
		return v, err
	})
}

// Check is [Store.Append] of questions as far as it does no I/O, for lockedmemory's Answer. An answer needs room
// beside them.
func (s *Store[M, D]) Check(questions ...M) error {
	texts, err := s.encode(questions)
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	if err == nil && (size > s.opts.MaxMessage || len(texts) > maxMessages/2) {
		err = fmt.Errorf("%w: %d questions have %d bytes together, at most %d and %d bytes are allowed; nothing was written: "+
			"answer some of them first", ErrTooLarge, len(texts), size, maxMessages/2, s.opts.MaxMessage)
	}
	return err
}

// Clear removes the history. Writers with an older lease cannot undo it. IDs stay known.
func (s *Store[M, D]) Clear(ctx context.Context) error {
	r, err := s.request(ctx, opClear)
	if err != nil {
		return err
	}
	return r.underLease(func(w storedriver.Write) (storedriver.Verdict, error) {
		return s.driver.Clear(ctx, storedriver.Clear{Write: w})
	})
}

// Delete removes the session for good: the history and the IDs. For 24 hours, the service keeps the place
// of the Delete, to refuse writers with an older lease. Turns whose wait began before the Delete fail with
// [ErrDeleted]. A later turn begins the session anew.
func (s *Store[M, D]) Delete(ctx context.Context) error {
	r, err := s.request(ctx, opDelete)
	if err != nil {
		return err
	}
	// ⚑ To a turn that waits from now on, the lock shows the raised token. If the lease has ended, the
	// service decides.
	if err := r.raise(r.lease.Fence()); err != nil && !isEnded(err) {
		return err
	}
	return r.underLease(func(w storedriver.Write) (storedriver.Verdict, error) {
		return s.driver.Clear(ctx, storedriver.Clear{Write: w, Forget: true})
	})
}

// maxMessages is how many messages an exchange has at most. A script takes a bounded number of words.
const maxMessages = 256

func (s *Store[M, D]) encode(messages []M) (texts [][]byte, err error) {
	switch n := len(messages); {
	case n == 0:
		return nil, invalidOption("an exchange has no message; nothing was written")
	case n > maxMessages:
		return nil, fmt.Errorf("%w: the exchange has %d messages, at most %d are allowed; nothing was written: "+
			"store them as several exchanges", ErrTooLarge, n, maxMessages)
	}
	size := 0
	for i, message := range messages {
		text, err := s.codec.Encode(message)
		if err != nil {
			return nil, fmt.Errorf("%w: encoding message %d; nothing was written: %w", ErrCodec, i+1, err)
		}
		if len(text) > s.opts.MaxMessage {
			return nil, fmt.Errorf("%w: message %d has %d bytes, at most %d are allowed; nothing was written: "+
				"keep large parts elsewhere and store a reference, or raise Options.MaxMessage", ErrTooLarge,
				i+1, len(text), s.opts.MaxMessage)
		}
		texts, size = append(texts, text), size+len(text)
	}
	if size > 2*s.opts.MaxMessage {
		return nil, fmt.Errorf("%w: the messages of the exchange have %d bytes, at most %d are allowed; nothing was "+
			"written: store them as several exchanges, or raise Options.MaxMessage", ErrTooLarge, size, 2*s.opts.MaxMessage)
	}
	return texts, nil
}

// digest tells contents apart.
func digest(messages [][]byte) [16]byte {
	h := sha256.New()
	for _, text := range messages {
		fmt.Fprintf(h, "%d:", len(text))
		h.Write(text)
	}
	return [16]byte(h.Sum(nil))
}
