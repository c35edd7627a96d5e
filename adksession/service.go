package adksession

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Options configure a Service. Nil means the defaults.
type Options struct {
	// Namespace begins all keys. Default: "adk". Two Services with the same store and the same Namespace
	// share their sessions.
	Namespace string
	// IdleTTL is how long a session is kept after its last Create, append, Stop, or Get under its lock. It must
	// be longer than the longest tool call. Whole milliseconds, at least one second. Default: for ever.
	IdleTTL time.Duration
	// Wait is the longest wait of a run, or of an Append. Default: lockedmemory.DefaultWait. Negative:
	// ctx alone decides.
	Wait time.Duration
	// Busy is what a run does if its session is busy: lockedmemory.Queue, the default, or
	// lockedmemory.Refuse.
	Busy lockedmemory.BusyPolicy
	// MaxEvent is the size of an event in bytes of JSON, and of an event with the first state of a session.
	// Default: 8 MiB.
	MaxEvent int
}

// Service is a session.Service of ADK, from NewRedis or NewPostgres. It is safe for concurrent use. Make
// one for each store: the handles of another one are refused.
//
// The text of an error names no ID, token or address. The cause, for errors.As, does.
type Service struct {
	store  store
	locker *distlock.Locker
	opts   Options
}

var _ session.Service = (*Service)(nil)

// newService checks the options, and makes the store.
func newService(locker *distlock.Locker, opts *Options, over func(storedriver.Retention) store) (*Service, error) {
	s := &Service{locker: locker, opts: *cmp.Or(opts, &Options{})}
	s.opts.Wait = cmp.Or(s.opts.Wait, lockedmemory.DefaultWait) // ⚑ WithWait ignores 0
	s.opts.MaxEvent = cmp.Or(s.opts.MaxEvent, 8<<20)
	keep, err := (&storedriver.Retention{Namespace: cmp.Or(s.opts.Namespace, "adk"), IdleTTL: s.opts.IdleTTL}).WithDefaults()
	if locker == nil || !fencing.Driver(locker).Capabilities().AcrossProcesses {
		return nil, fmt.Errorf("%w: the Locker is nil, or of one process, but the sessions are not: "+
			"make it with redislock.New or pglock.New", distlock.ErrInvalidOption)
	}
	_, err2 := s.turns("check")
	switch err = cmp.Or(err, err2); {
	case err != nil:
		return nil, err
	case s.opts.MaxEvent < 0:
		return nil, fmt.Errorf("%w: MaxEvent is negative", distlock.ErrInvalidOption)
	}
	s.store = over(keep)
	return s, nil
}

// check returns an error if a part cannot be stored.
func (i id) check() error {
	for _, part := range []string{i.app, i.user, i.name} {
		if part == "" || len(part) > 128 || !storable(part) {
			return public(distlock.ErrInvalidKey)
		}
	}
	return nil
}

// member names a session in its app. ⚑ An escaped user has no slash, so a slash ends it.
func (i id) member() string { return url.QueryEscape(i.user) + "/" + url.QueryEscape(i.name) }

// key is that of the lock. A hash has no slash, so no two sessions share a key.
func (i id) key() string {
	key := url.QueryEscape(i.app) + "/" + i.member()
	if len(key) > 1024 { // the longest of a Locker
		key = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
	}
	return key
}

// Create creates a session. Its reply has the states of the app and the user, too. An empty SessionID
// becomes a new UUID. Errors: ErrExists, ErrCodec, ErrTooLarge, and under a lease those of a lease that
// has ended.
//
// ⚑ After a lost answer, Create is not repeated: a late copy would revive a session that was deleted since.
func (s *Service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	of := id{req.AppName, req.UserID, cmp.Or(req.SessionID, platform.NewUUID(ctx))}
	_, values, err := s.encode(&session.Event{Actions: session.EventActions{StateDelta: req.State}})
	if err != nil {
		return nil, public(err)
	}
	r, err := s.open(ctx, request{operation: opCreate, id: of, op: rand.Text(), state: values})
	if err != nil {
		return nil, err
	}
	return &session.CreateResponse{Session: s.newHandle(of, r)}, nil
}

// open gets or creates a session. Under a lease, that is a step of the lease.
func (s *Service) open(ctx context.Context, q request) (r reply, err error) {
	err = s.step(ctx, q.id, 0, func(ctx context.Context, lease *distlock.Lease) (err error) {
		if q.operation == opCreate && lease != nil && lease.Context().Err() != nil {
			// ⚑ ADK creates a session after any error of a Get, also after that of an ended lease.
			return context.Cause(lease.Context())
		}
		if r, err = s.ask(ctx, lease, q); err != nil {
			return err
		}
		return r.decode(q.recent)
	})
	return r, err
}

// Get reads a session: the events from After on, and of these the last NumRecentEvents, with the whole
// state. Under the lease of the session, it bars the holders before. Errors: ErrNotFound, ErrStale,
// ErrCodec, and those of distlock.
//
// The history is one reply. Other calls of a Redis wait for it, about 10 ms for each MiB, and the
// ReadTimeout of its client must cover it. PostgreSQL refuses a reply above 1 GB.
//
// A failed read is repeated for 5 seconds: ⚑ ADK creates a session after any error.
func (s *Service) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	q := request{operation: opGet, id: id{req.AppName, req.UserID, req.SessionID}, recent: math.MaxInt32}
	if req.NumRecentEvents > 0 && req.After.IsZero() { // else the last of the later ones are not known yet
		q.recent = int64(req.NumRecentEvents)
	}
	r, err := s.open(ctx, q)
	if err != nil {
		return nil, err
	}
	r.events = slices.DeleteFunc(r.events, func(e *session.Event) bool { return e.Timestamp.Before(req.After) })
	if n := req.NumRecentEvents; n > 0 {
		r.events = r.events[max(0, len(r.events)-n):]
	}
	return &session.GetResponse{Session: s.newHandle(q.id, r)}, nil
}

// List returns the sessions of an app, or of one user, without their events, in the order of user and ID.
func (s *Service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if err := (id{req.AppName, cmp.Or(req.UserID, "any"), "any"}).check(); err != nil {
		return nil, err
	}
	r, err := s.ask(ctx, nil, request{operation: opGet, id: id{app: req.AppName, user: req.UserID}})
	if err != nil {
		return nil, public(err)
	}
	list := &session.ListResponse{Sessions: make([]session.Session, len(r.found))}
	for i, one := range r.found {
		if err := one.decode(0); err != nil {
			return nil, public(err)
		}
		list.Sessions[i] = s.newHandle(one.id, one)
	}
	slices.SortFunc(list.Sessions, func(a, b session.Session) int { // ⚑ the stores have orders of their own
		return cmp.Or(cmp.Compare(a.UserID(), b.UserID()), cmp.Compare(a.ID(), b.ID()))
	})
	return list, nil
}

// Delete removes a session and its state at once, without its lock. The states of its app and its user
// stay. An absent session is no error. A run of the session fails at its next append.
//
// ⚑ After a lost answer, Delete is not repeated: a late copy would remove the next session with the ID.
func (s *Service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	of := id{req.AppName, req.UserID, req.SessionID}
	if err := of.check(); err != nil {
		return err
	}
	_, err := s.ask(ctx, nil, request{operation: opDelete, id: of})
	return public(err)
}
