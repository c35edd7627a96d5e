package sessionstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// request is one call of a Store.
type request struct {
	ctx     context.Context
	op      operation
	driver  storedriver.Driver
	session string
	lease   *distlock.Lease     // nil: a read without a lease
	state   *leaseState         // of the lease
	seen    []storedriver.Entry // what the call has read or stored last
	id      string              // the ID that the call reads or writes
	rereads bool                // for a write that comes next, see reread
}

// operation names a call in errors.
type operation string

const (
	opAppend   operation = "append"
	opSaveOnce operation = "save once"
	opClear    operation = "clear"
	opReplace  operation = "replace"
	opFork     operation = "fork"
	opDelete   operation = "delete"
	opClose    operation = "close a message"
	opPut      operation = "put"

	// Reads. A read may leave a mark, which changes no history.
	opSource   operation = "fork: reading the history"
	opLoad     operation = "load"
	opSearch   operation = "search"
	opAnswered operation = "answered"
	opForward  operation = "forward"
	opBackward operation = "backward"
	opLast     operation = "last"
	opSessions operation = "sessions"
	opPending  operation = "pending"
	opInboxes  operation = "inboxes"
	opPing     operation = "ping"
)

// writes reports whether the caller asked for a change of the history.
func (op operation) writes() bool {
	return slices.Contains([]operation{opAppend, opSaveOnce, opClear, opReplace, opFork, opDelete, opClose, opPut}, op)
}

// advice is what to do after an unknown outcome.
func (op operation) advice() string {
	switch op {
	case opSaveOnce:
		return "repeat the call with the same ID and messages"
	case opClose, opPut:
		return "repeat the call"
	}
	return "load the history in a new turn to see whether it was carried out"
}

// request begins a call. It fails if the session is not known, or if the lease does not fit.
func (s *Store[M, D]) request(ctx context.Context, op operation) (*request, error) {
	key, err := s.key(ctx)
	lease, _ := lockedmemory.Lease(ctx)
	if op == opSource || op == opClose || op == opPut { // ⚑ the lease is that of the other session, or of another message
		lease = nil
	}
	if err != nil {
		return nil, fmt.Errorf("sessionstore: %s: %w: the KeyFunc does not know the session: %w", op, distlock.ErrInvalidKey, err)
	}
	return s.requestFor(ctx, op, key, lease)
}

// requestFor is request for a session. lease may be nil.
func (s *Store[M, D]) requestFor(ctx context.Context, op operation, key string, lease *distlock.Lease) (r *request, err error) {
	switch {
	case key == "":
		err = fmt.Errorf("%w: the session is empty: put its ID into the context that the KeyFunc reads",
			distlock.ErrInvalidKey)
	case lease == nil && op.writes() && op != opClose && op != opPut:
		err = fmt.Errorf("%w: the store writes under a lease alone: put lockedmemory.New in front of it", distlock.ErrNotHeld)
	case lease != nil && lease.Key() != key:
		err = fmt.Errorf("%w: the lease is for another session: give the store the KeyFunc that lockedmemory.New has",
			distlock.ErrNotHeld)
	}
	if err != nil {
		return nil, fmt.Errorf("sessionstore: %s: %w", op, err)
	}
	r = &request{ctx: ctx, op: op, driver: s.driver, session: key, lease: lease}
	if lease != nil {
		r.state = stateOf(s, lease)
	}
	return r, nil
}

// tries bounds how often a refused call is made again: at the next place, or with a higher token.
const tries = 5

// underLease makes a call under the lease of a request. If the store refuses its token from the first, the
// lock may give a higher one: the store may have seen tokens from before the lock service lost its
// data. Only the lock's owner is given one.
//
// ⚑ A copy of a write that is sent again has the same place and Op.
func (r *request) underLease(do func(storedriver.Write) (storedriver.Verdict, error)) (err error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, says crypto/rand
	for range tries {
		access := r.state.access(r.lease)
		for id := answerOf(r.lease).Load(); access.FirstAccess && id != nil && *id != r.id; access = r.state.access(r.lease) {
			if err := r.reread(*id); err != nil {
				return err
			}
		}
		w := storedriver.Write{Access: access, Op: hex.EncodeToString(id[:])}
		if r.op.writes() {
			// The place is used up whatever the outcome: a late copy of the write must not meet another
			// write there.
			w.N = r.state.places.Add(1)
		} else if !r.rereads { // a read brings what a later lease has stored
			w.AcceptedFence = 0
		}
		v, failure := repeat(r.ctx, fencing.Options(fencing.Locker(r.lease)).TTL,
			func() (storedriver.Verdict, error) { return do(w) })
		if failure != nil {
			err = r.callError(failure)
			if cause := r.lease.Err(); isEnded(cause) {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			return err
		}
		if v.Outcome == storedriver.Done {
			r.state.accept(w.Fence, r.seen)
		}
		var again bool
		if again, err = r.settle(v, w.Fence, access.AcceptedFence > 0); !again {
			return err
		}
	}
	return err
}

// reread shows the token of a lease by a read of the message that an Answer answers under the lease. ⚑ The
// mark of a Stop refuses the token that the lease had. A raised token passes, so the message decides.
func (r *request) reread(id string) error {
	first := *r
	first.op, first.id, first.rereads = opAnswered, id, r.op.writes()
	_, err := first.readPage(storedriver.Read{ID: id, Limit: 1})
	return err
}

// raise gives the lease a token above another one. Before, the session accepts the token that the lease has.
// ⚑ A write of unknown outcome may have shown that token, and would make a higher one overtaken.
// ⚑ After the raise, a Fork is not refused for a Delete. For a Delete itself, that is meant.
func (r *request) raise(above int64) error {
	if a := r.state.access(r.lease); a.FirstAccess && (a.AcceptedFence > 0 || r.op == opFork) {
		if _, err := r.readPage(storedriver.Read{Limit: 1}); err != nil {
			return err
		}
	}
	if err := fencing.RaiseToken(r.ctx, r.lease, above); err != nil {
		return fmt.Errorf("sessionstore: %s: the lock gives no higher token; nothing was written: %w", r.op, err)
	}
	return nil
}

// isEnded reports whether an error says that a lease has ended.
func isEnded(err error) bool {
	return errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrNotHeld)
}

// settle returns what an answer means for the caller, and whether another try may change that.
// accepted says that the service has accepted a token of the lease before.
func (r *request) settle(v storedriver.Verdict, fence int64, accepted bool) (again bool, err error) {
	if v.Replayed && r.op.writes() && v.Outcome.Refuses() {
		// ⚑ The first copy may have been carried out. Other leases, or other stores under this lease, may
		// have removed what it stored. In a turn too: a pause longer than the TTL loses the lease.
		return false, fmt.Errorf("%w: %s: the request was sent more than once, and the store refused a copy: %s",
			outcomeUnknown, r.op, r.op.advice())
	}
	stale := &StaleError{Fence: fence, MarkToken: v.Mark.Fence}
	switch v.Outcome {
	case storedriver.Done, storedriver.Known:
		return false, nil
	case storedriver.Stale, storedriver.Unowned:
	default:
		return false, r.refusalError(v.Outcome)
	}
	// ⚑ Only another lease can have raised the mark above the token of this lease if the service has
	// accepted that. The loaded history is outdated then, even if this lease owns the lock: after a
	// failover, two leases may own it. But a Delete at the same time may have raised the token.
	if v.Outcome == storedriver.Stale && accepted {
		return fence < r.lease.Fence(), stale
	}
	err = fencing.RaiseToken(r.ctx, r.lease, max(v.Mark.Fence, fence))
	switch {
	case err == nil:
		return true, stale
	case isEnded(err):
		return false, fmt.Errorf("%w: %w", err, stale)
	}
	return false, fmt.Errorf("sessionstore: %s: the store has seen fencing token %d, this lease has %d, "+
		"and the lock gives no higher one: %w", r.op, v.Mark.Fence, fence, err)
}
