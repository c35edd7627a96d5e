package adksession

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	// Namespace begins all keys. Default: "adk". Two Services with the same store and the same Namespace share
	// their sessions.
	Namespace string
	// IdleTTL is how long a session is kept after its last Create, append, or Get under its lock. It must be
	// longer than the longest tool call. Whole milliseconds, at least one second. Default: for ever.
	IdleTTL time.Duration
	// Wait is the longest wait of a run, or of an Append. Default: lockedmemory.DefaultWait. Negative: ctx alone
	// decides.
	Wait time.Duration
	// Busy is what a run does if its session is busy: lockedmemory.Queue, the default, or lockedmemory.Refuse.
	Busy lockedmemory.BusyPolicy
	// MaxEvent is the size of an event in bytes of JSON, and of the first state of a session. Default: 8 MiB.
	MaxEvent int
}

// Service is a session.Service of ADK on Redis or PostgreSQL. It is safe for concurrent use. Make one for each
// store: the handles of another one are refused.
//
// The text of an error names no ID, token or address. The cause, for errors.As, does.
type Service struct {
	store  store
	locker *distlock.Locker
	opts   Options
}

var _ session.Service = (*Service)(nil)

// newService checks the options before open makes the store.
func newService(locker *distlock.Locker, opts *Options, open func(keep storedriver.Retention) (store, error)) (*Service, error) {
	s := &Service{locker: locker, opts: *cmp.Or(opts, &Options{})}
	s.opts.Wait = cmp.Or(s.opts.Wait, lockedmemory.DefaultWait) // ⚑ WithWait ignores 0
	s.opts.MaxEvent = cmp.Or(s.opts.MaxEvent, 8<<20)
	keep, err := (&storedriver.Retention{Namespace: cmp.Or(s.opts.Namespace, "adk"), IdleTTL: s.opts.IdleTTL}).WithDefaults()
	if err != nil {
		return nil, err
	}
	switch _, err := s.turns("check"); {
	case err != nil:
		return nil, err
	case !fencing.Driver(locker).Capabilities().AcrossProcesses:
		return nil, fmt.Errorf("%w: other processes see the sessions, but not the locks of the backend %q: use redislock.New or pglock.New",
			distlock.ErrInvalidOption, fencing.Backend(locker))
	case s.opts.MaxEvent < 0:
		return nil, fmt.Errorf("%w: MaxEvent is %d, but must not be negative", distlock.ErrInvalidOption, s.opts.MaxEvent)
	}
	s.store, err = open(keep)
	return s, err
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

// maxKey is that of a Locker.
const maxKey = 1024

// key is that of the lock. No hash has a slash, so no two sessions share a key.
func (i id) key() string {
	key := url.QueryEscape(i.app) + "/" + url.QueryEscape(i.user) + "/" + url.QueryEscape(i.name)
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		key = "sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}

// unique is 16 random bytes as hexadecimal digits.
func unique() string {
	var bytes [16]byte
	_, _ = rand.Read(bytes[:]) // never fails, says crypto/rand
	return hex.EncodeToString(bytes[:])
}

// Create creates a session. Its reply has the states of the app and the user, too. An empty SessionID becomes a new
// UUID. Errors: ErrExists, ErrCodec, ErrTooLarge, and under a lease those of a lease that has ended.
//
// ⚑ After a lost answer, Create is not repeated: a late copy would revive a session that was deleted since.
func (s *Service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	of := id{req.AppName, req.UserID, cmp.Or(req.SessionID, platform.NewUUID(ctx))}
	if err := of.check(); err != nil {
		return nil, err
	}
	state, err := encodeState(req.State)
	size := 0
	for _, d := range state {
		size += len(d.key) + len(d.value)
	}
	if size > s.opts.MaxEvent {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, public(err)
	}
	c := creation{access: access{id: of, born: unique()}, state: state}
	h, err := s.open(ctx, of, func(ctx context.Context, lease *distlock.Lease) (reply, error) {
		return s.ask(ctx, &c.access, lease, once, func() (reply, error) { return s.store.create(ctx, c) })
	}, func(lease *distlock.Lease) error {
		// ⚑ ADK creates a session after any error of a Get, also after that of an ended lease.
		return context.Cause(lease.Context())
	})
	if err != nil {
		return nil, err
	}
	return &session.CreateResponse{Session: h}, nil
}

// open makes a handle of what read returns. Under a lease, the read is a step of it, and gives the lease its
// place.
func (s *Service) open(ctx context.Context, of id, read func(context.Context, *distlock.Lease) (reply, error),
	admit func(*distlock.Lease) error) (h *handle, err error) {
	build := func(ctx context.Context, lease *distlock.Lease) error {
		r, err := read(ctx, lease)
		if err == nil {
			h, err = s.newHandle(of, r.session, r.records)
		}
		if err != nil || lease == nil {
			return err
		}
		l := s.leased(lease)
		if l.place != nil {
			// ⚑ A failover has dropped an append of the lease. An older handle must not go on after it.
			if before := l.place.Load(); before.born == r.session.born {
				if before.op != r.session.op {
					return ErrStale
				}
				h.place = l.place
			}
		}
		l.place = h.place
		return nil
	}
	if lease, in := s.locker.FromContext(ctx, of.key()); !in {
		err = build(ctx, nil)
	} else if err = admit(lease); err == nil {
		err = s.step(ctx, of, build)
	}
	return h, public(err)
}

// Get reads a session: the events from After on, and of these the last NumRecentEvents, with the whole state. Under
// the lease of the session, it bars the holders before. Errors: ErrNotFound, ErrStale, ErrCodec, and those of
// distlock.
//
// A failed read is repeated for 5 seconds: ⚑ ADK creates a session after any error.
func (s *Service) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	of := id{req.AppName, req.UserID, req.SessionID}
	if err := of.check(); err != nil {
		return nil, err
	}
	recent := int64(max(0, req.NumRecentEvents))
	if !req.After.IsZero() {
		recent = 0 // of the events from After on
	}
	h, err := s.open(ctx, of, func(ctx context.Context, lease *distlock.Lease) (reply, error) {
		return s.read(ctx, of, lease, recent)
	}, func(*distlock.Lease) error { return nil })
	if err != nil {
		return nil, err
	}
	if !req.After.IsZero() {
		h.events = slices.DeleteFunc(h.events, func(e *session.Event) bool { return e.Timestamp.Before(req.After) })
		if first := len(h.events) - req.NumRecentEvents; req.NumRecentEvents > 0 && first > 0 {
			h.events = h.events[first:]
		}
	}
	return &session.GetResponse{Session: h}, nil
}

// read reads a session in pages.
func (s *Service) read(ctx context.Context, of id, lease *distlock.Lease, recent int64) (reply, error) {
next:
	for range 3 {
		first := page{access: access{id: of}, recent: recent}
		r, err := s.ask(ctx, &first.access, lease, reads, func() (reply, error) { return s.store.get(ctx, first) })
		if err != nil {
			return r, err
		}
		for at := r.from + int64(len(r.records)); at < r.session.n; at = r.from + int64(len(r.records)) {
			later := page{access: access{id: of, born: r.session.born}, from: at, upto: r.session.n}
			more, err := s.ask(ctx, &later.access, nil, reads, func() (reply, error) { return s.store.get(ctx, later) })
			if errors.Is(err, ErrNotFound) { // replaced by another session, or by a failover
				continue next
			}
			if err != nil {
				return r, err
			}
			r.records = append(r.records, more.records...)
		}
		return r, nil
	}
	return reply{}, fmt.Errorf("%w: the session was replaced during each of three reads", distlock.ErrUnavailable)
}

// List returns the sessions of an app, or of one user, without their events, in the order of user and ID.
func (s *Service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if err := (id{req.AppName, cmp.Or(req.UserID, "any"), "any"}).check(); err != nil {
		return nil, err
	}
	var all []stored
	for after, more := (id{}), true; more; more = after != (id{}) {
		var found []stored
		_, err := s.ask(ctx, new(access), nil, reads, func() (r reply, err error) {
			var next id
			if found, next, err = s.store.list(ctx, req.AppName, req.UserID, after); err == nil {
				after = next
			}
			return r, err
		})
		if err != nil {
			return nil, public(err)
		}
		all = append(all, found...)
	}
	// The stores have orders of their own.
	slices.SortFunc(all, func(a, b stored) int { return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(a.name, b.name)) })
	list := &session.ListResponse{Sessions: make([]session.Session, 0, len(all))}
	for _, one := range all {
		h, err := s.newHandle(one.id, one, nil)
		if err != nil {
			return nil, public(err)
		}
		list.Sessions = append(list.Sessions, h)
	}
	return list, nil
}

// Delete removes a session and its state at once, without its lock. The states of its app and its user stay. It is no
// error if there is none. A run of the session fails at its next append.
//
// ⚑ After a lost answer, Delete is not repeated: a late copy would remove the next session with the ID.
func (s *Service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	of := id{req.AppName, req.UserID, req.SessionID}
	if err := of.check(); err != nil {
		return err
	}
	_, err := s.ask(ctx, new(access), nil, once, func() (reply, error) { return reply{}, s.store.delete(ctx, of) })
	return public(err)
}
