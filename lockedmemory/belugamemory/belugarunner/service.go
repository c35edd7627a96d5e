package belugarunner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// sessionService keeps sessions in a session store, see [Runner.Sessions]. docs/design/beluga-runner.md
// has the format and all states.
type sessionService struct {
	locker *distlock.Locker
	locked *lockedmemory.LockedMemory[[]byte, struct{}]
	store  *sessionstore.Store[[]byte, struct{}] // of locked
	known  sync.Map                              // of weak.Pointer[runtime.Session] to version
}

// newSessionService makes a service. It refuses a driver whose sessions other processes see, but not the
// locks.
func newSessionService(d storedriver.Driver, locker *distlock.Locker, wait time.Duration) (*sessionService, error) {
	store, err := sessionstore.New[[]byte, struct{}](d, belugamemory.SessionKey, lines{}, &sessionstore.Options{MaxMessage: maxSession})
	if err != nil {
		return nil, err
	}
	locked, err := lockedmemory.New(store, locker, belugamemory.SessionKey, &lockedmemory.Options{Wait: wait})
	if err != nil {
		return nil, err
	}
	return &sessionService{locker: locker, locked: locked, store: store}, nil
}

const opUpdate = "belugarunner.update"

const (
	maxSession = 64 << 20 // of the turns that one Update stores
	maxPiece   = 64 << 10 // of the turns in one exchange of a changed history: a run reads whole exchanges
)

// version is the state of a stored session, as the holder of a *Session knows it.
type version struct {
	id     string
	lease  *distlock.Lease    // nil: read without a lease, or under one that has ended
	writes int64              // of the session under the lease
	turns  []uint64           // the digests of the turns that were read or stored
	oldest lockedmemory.Place // of the exchange with the first of them; zero: the session's first
}

// Create stores a new session with the ID of core.GetSessionID, or a random ID without one. So a Runner
// keeps the ID that its caller has chosen. It fails with core.ErrInvalidInput if the session exists, and
// replaces an expired one. Outside of a run it takes the session's lock.
func (s *sessionService) Create(ctx context.Context, agentID string) (*runtime.Session, error) {
	const op = "belugarunner.create"
	id := core.GetSessionID(ctx)
	if id == "" {
		id = rand.Text()
	}
	ctx = core.WithSessionID(ctx, id)
	now := time.Now().UTC()
	session := &runtime.Session{ID: id, AgentID: agentID, TenantID: string(core.GetTenant(ctx)),
		State: map[string]any{}, CreatedAt: now, UpdatedAt: now}
	err := s.locked.Turn(ctx, func(ctx context.Context) error {
		stored, _, _, err := decodeSession(id, s.locked.Backward(ctx, lockedmemory.Place{}), 0)
		if err != nil {
			return err
		}
		if stored != nil {
			if !expired(stored) {
				return codes.Invalid("the session exists; nothing was written: read it with Get, or choose another ID")
			}
			if err := s.locked.Clear(ctx); err != nil {
				return err
			}
		}
		lease := s.leaseIn(ctx)
		v := version{id: id, lease: lease, writes: writes(lease).Load()}
		if v, err = s.write(ctx, session, v, ""); err == nil {
			s.keep(session, v)
		}
		return err
	})
	if err != nil {
		return nil, codes.Of(op, err)
	}
	return session, nil
}

// Get returns the session, or core.ErrNotFound. It takes no lock. An Update needs a Get under the same
// lease.
func (s *sessionService) Get(ctx context.Context, sessionID string) (*runtime.Session, error) {
	return s.get(ctx, sessionID, math.MaxInt)
}

// get returns the session with the newest turns within a budget of tokens.
func (s *sessionService) get(ctx context.Context, sessionID string, budget int) (*runtime.Session, error) {
	const op = "belugarunner.get"
	if sessionID == "" {
		return nil, codes.Of(op, errEmptyID)
	}
	ctx = core.WithSessionID(ctx, sessionID)
	v := version{id: sessionID, lease: s.leaseIn(ctx)}
	if v.lease != nil {
		v.writes = writes(v.lease).Load() // ⚑ before the read: a later Update makes the version outdated
	}
	session, digests, oldest, err := decodeSession(sessionID, s.newestFirst(ctx, budget), budget)
	if err != nil {
		return nil, codes.Of(op, err)
	}
	if session == nil || expired(session) {
		return nil, notFound(op)
	}
	v.turns, v.oldest = digests, oldest
	s.keep(session, v)
	return session, nil
}

// newestFirst yields the Updates. Without a budget it reads all of one moment.
func (s *sessionService) newestFirst(ctx context.Context, budget int) iter.Seq2[lockedmemory.Exchange[[]byte], error] {
	if budget < math.MaxInt {
		return s.locked.Backward(ctx, lockedmemory.Place{})
	}
	return func(yield func(lockedmemory.Exchange[[]byte], error) bool) {
		all, err := s.locked.Last(ctx, math.MaxInt)
		if err != nil {
			yield(lockedmemory.Exchange[[]byte]{}, err)
		}
		for _, exchange := range slices.Backward(all) {
			if !yield(exchange, nil) {
				return
			}
		}
	}
}

// Update stores the session: its new turns, and the other fields. Turns that were changed or removed are
// replaced in one step. It sets UpdatedAt of the stored session. It fails with core.ErrInvalidInput, and
// has written nothing, without the session's lease, for a session that Get or Create has not returned
// under this lease, after another Update since, and for a TenantID or ID that was changed. If the session
// was deleted, it fails with core.ErrNotFound. After [belugamemory.ErrOutcomeUnknown], call Get again.
func (s *sessionService) Update(ctx context.Context, session *runtime.Session) error {
	return s.update(ctx, opUpdate, session, "")
}

// update is Update. With the ID of a message, the session's last turn is its answer.
func (s *sessionService) update(ctx context.Context, op string, session *runtime.Session, id string) error {
	if session == nil {
		return codes.Of(op, codes.Invalid("the session is nil: give the one that Get has returned"))
	}
	ctx = core.WithSessionID(ctx, session.ID)
	lease := s.leaseIn(ctx)
	found, ok := s.known.Load(weak.Make(session))
	v, _ := found.(version)
	var why error
	switch {
	case session.ID == "":
		why = errEmptyID
	case lease == nil:
		why = fmt.Errorf("%w: the context has no lease of the session from this Locker: call it under the Do of Runner.Locker",
			distlock.ErrNotHeld)
	case !ok:
		why = codes.Invalid("the session was not returned by Get or Create of this service: change that one, not a copy")
	case v.id != session.ID || session.TenantID != string(core.GetTenant(ctx)):
		why = codes.Invalid("the session has another ID or TenantID than the context of the run: leave both unchanged")
	case v.lease != lease:
		why = fmt.Errorf("%w: the session was read under another lease, so turns may be missing: call Get again", distlock.ErrLost)
	}
	if why != nil {
		return codes.Of(op, fmt.Errorf("nothing was written: %w", why))
	}
	updated := *session
	updated.UpdatedAt = time.Now().UTC()
	v, err := s.write(ctx, &updated, v, id)
	if err == nil {
		s.keep(session, v)
		return nil
	}
	return codes.Of(op, err)
}

// Delete removes the session for good, and returns core.ErrNotFound without one. Outside of a run it takes
// the session's lock.
func (s *sessionService) Delete(ctx context.Context, sessionID string) error {
	const op = "belugarunner.delete"
	if sessionID == "" {
		return codes.Of(op, errEmptyID)
	}
	ctx = core.WithSessionID(ctx, sessionID)
	found := false
	err := s.locked.Turn(ctx, func(ctx context.Context) error {
		newest, err := s.locked.Last(ctx, 1)
		if found = len(newest) > 0; err != nil || !found {
			return err
		}
		return s.locked.Delete(ctx)
	})
	if err == nil && !found {
		return notFound(op)
	}
	return codes.Of(op, err)
}

// write stores a session whose stored state is v, and returns its new state. ⚑ A Replace records no ID. So the
// answer to a message comes first: after a crash between the two, a repetition returns it.
func (s *sessionService) write(ctx context.Context, session *runtime.Session, v version, id string) (version, error) {
	head, turns, digests, err := encodeSession(session)
	if err != nil {
		return v, err
	}
	same := 0 // turns at the beginning that are stored
	for same < min(len(digests), len(v.turns)) && digests[same] == v.turns[same] {
		same++
	}
	count := writes(v.lease)
	if !count.CompareAndSwap(v.writes, v.writes+1) {
		return v, fmt.Errorf("%w: the session was updated since it was read; nothing was written: call Get again",
			distlock.ErrLost)
	}
	switch appends, last := same == len(v.turns), len(turns)-1; {
	case id == "" && appends:
		err = s.locked.Append(ctx, joined(head, turns[same:]))
	case id == "":
		err = s.replace(ctx, v.oldest, head, turns, "")
	case appends:
		err = s.locked.SaveOnce(ctx, id, joined(head, turns[same:]))
	default:
		if err = s.locked.SaveOnce(lastwrite.Withdraw(ctx), id, joined(head, turns[last:])); err != nil {
			break
		}
		if err = s.replace(ctx, v.oldest, head, turns[:last], id); err != nil {
			err = fmt.Errorf("%w: the answer is stored, and earlier turns may be as before: %w", distlock.ErrOutcomeUnknown, err)
		}
	}
	if err != nil {
		if !errors.Is(err, distlock.ErrOutcomeUnknown) { // nothing was written
			count.CompareAndSwap(v.writes+1, v.writes)
		}
		return v, err
	}
	v.writes, v.turns = v.writes+1, digests
	return v, nil
}

// replace stores a changed history from the exchange at oldest on in one step, in pieces, each of which
// has the head. The exchange under an ID stays.
func (s *sessionService) replace(ctx context.Context, oldest lockedmemory.Place, head []byte, turns [][]byte, id string) error {
	var first, last lockedmemory.Place
	for exchange, err := range s.locked.Backward(ctx, lockedmemory.Place{}) {
		if err != nil {
			return err
		}
		if id != "" && exchange.ID == id {
			continue
		}
		if exchange.Place.Compare(oldest) < 0 {
			break
		}
		if first = exchange.Place; last == (lockedmemory.Place{}) {
			last = exchange.Place
		}
	}
	var pieces []lockedmemory.Exchange[[]byte]
	for len(turns) > 0 || pieces == nil {
		n, size := 0, 0
		for n < len(turns) && (n == 0 || size+len(turns[n]) <= maxPiece) {
			size += len(turns[n])
			n++
		}
		pieces = append(pieces, lockedmemory.Exchange[[]byte]{Messages: [][]byte{joined(head, turns[:n])}})
		turns = turns[n:]
	}
	return s.locked.Replace(ctx, first, last, pieces...)
}

// leaseIn returns the lease of the context's session, or nil.
func (s *sessionService) leaseIn(ctx context.Context) *distlock.Lease {
	key, err := belugamemory.SessionKey(ctx)
	if err != nil {
		return nil // the call of the memory reports it
	}
	lease, _ := s.locker.FromContext(ctx, key)
	return lease
}

// writesKey is that of the count of Updates among the attachments of a lease.
type writesKey struct{}

// writes counts the Updates under a lease. ⚑ The services of a process share the count: with a count
// each, the Update of one would not see that of another.
func writes(lease *distlock.Lease) *atomic.Int64 {
	return fencing.Attach(lease, writesKey{}, func() any { return new(atomic.Int64) }).(*atomic.Int64)
}

// keep notes the state of a session as long as the caller has the session.
func (s *sessionService) keep(session *runtime.Session, v version) {
	handle := weak.Make(session)
	if _, known := s.known.Swap(handle, v); !known {
		goruntime.AddCleanup(session, func(handle weak.Pointer[runtime.Session]) { s.known.Delete(handle) }, handle)
	}
}

func expired(session *runtime.Session) bool {
	return !session.ExpiresAt.IsZero() && time.Now().After(session.ExpiresAt)
}

func notFound(op string) error {
	return core.NewError(op, core.ErrNotFound, "there is no such session", nil)
}
