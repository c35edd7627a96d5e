package pgstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Options configure a store. The zero value of a field, and nil Options, mean the defaults.
type Options struct {
	Lock      distlock.Options // of Open alone
	Retention sessionstore.Retention
	Store     sessionstore.Options
	// Schema is the schema of the tables and functions, see [Migrate]: 1 to 63 lower-case letters,
	// digits or _. Default: "belugalock". Open takes it from the URL.
	Schema string
}

// New makes a store for the database of pool. Give it the KeyFunc that the lock has. The caller
// closes pool. New does no I/O. It returns distlock.ErrInvalidOption for a nil pool, key or codec,
// and for options out of range.
//
// Calls of the store take connections of pool. A pool that the application has used up delays them.
func New[M, D any](pool *pgxpool.Pool, key lockedmemory.KeyFunc, codec sessionstore.Codec[M, D],
	opts *Options) (*sessionstore.Store[M, D], error) {
	opts = cmp.Or(opts, &Options{})
	d, err := NewDriver(pool, opts)
	if err != nil {
		return nil, err
	}
	return sessionstore.New(d, key, codec, &opts.Store)
}

// NewDriver makes a driver over pool, which the caller closes. It uses Schema and Retention of
// opts, and refuses what [New] refuses.
func NewDriver(pool *pgxpool.Pool, opts *Options) (storedriver.Driver, error) {
	opts = cmp.Or(opts, &Options{})
	schema := opts.schema()
	if err := schema.Validate(); err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, postgres.ErrNoPool
	}
	s, err := newSessions(postgres.Over("pgstore", pool, schema), &opts.Retention)
	if err != nil {
		return nil, err
	}
	s.source = pool
	return s, nil
}

func newSessions(pool *postgres.Pool, keep *storedriver.Retention) (*sessions, error) {
	kept, err := keep.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &sessions{pool: pool, keep: kept, limits: []int64{int64(kept.MaxExchanges), kept.MaxAge.Microseconds()}}
	if kept.IdleTTL > 0 {
		s.idle = &kept.IdleTTL
	}
	return s, nil
}

// sessions is a storedriver.Driver.
type sessions struct {
	pool   *postgres.Pool
	keep   storedriver.Retention
	idle   *time.Duration // nil: for ever
	limits []int64        // see session_trim_v1
	// source and locks tell whether a lock is in the same database. One of them is nil.
	source *pgxpool.Pool
	locks  driver.Driver
}

// verdict makes a call that answers one.
func (s *sessions) verdict(ctx context.Context, function string, args []any) (storedriver.Verdict, error) {
	return postgres.One(ctx, s.pool, scanVerdict, function, args...)
}

func scanVerdict(row pgx.CollectableRow) (v storedriver.Verdict, err error) {
	err = row.Scan(&v.Outcome, &v.Mark.Fence, &v.Mark.N)
	return v, err
}

// access returns the first arguments of each function that writes.
func (s *sessions) access(a storedriver.Access) []any {
	return []any{s.keep.Namespace, a.Session, a.Fence, a.AcceptedFence, a.Awaited, a.Since, a.FirstAccess, s.idle, s.limits}
}

func (s *sessions) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	ids, keys := idsArgs(a.IDs)
	_, superseded := idsArgs(a.Superseded)
	args := append(s.access(a.Access), a.N, a.Op, a.HistoryUpTo.Fence, a.HistoryUpTo.N, a.HistoryUpTo.Sub, notNull(a.Messages),
		ids, keys, superseded, uuid(a.Digest[:]), s.keep.RememberIDs)
	if lock, ok := s.colocated(ctx, a); ok {
		return s.appendRelease(ctx, a.Lease, lock, args)
	}
	return s.verdict(ctx, "append_v1", args)
}

// idArgs are an ID, which may be any text, and its key among the IDs of a session. Both are null without
// an ID.
func idArgs(id string) (text []byte, key pgtype.UUID) {
	if id == "" {
		return nil, key
	}
	sum := sha256.Sum256([]byte(id))
	return []byte(id), uuid(sum[:16])
}

// idsArgs are those of some IDs.
func idsArgs(ids []string) (texts [][]byte, keys []pgtype.UUID) {
	texts, keys = make([][]byte, len(ids)), make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		texts[i], keys[i] = idArgs(id)
	}
	return texts, keys
}

// uuid has a type of pgx, which can also be sent as text.
func uuid(id []byte) pgtype.UUID { return pgtype.UUID{Bytes: [16]byte(id), Valid: true} }

// notNull makes an array that is not null, of messages that are not null.
func notNull(messages [][]byte) [][]byte {
	all := make([][]byte, len(messages))
	for i, m := range messages {
		if all[i] = m; m == nil {
			all[i] = []byte{}
		}
	}
	return all
}

func (s *sessions) Replace(ctx context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	return s.replace(ctx, "replace", r)
}

func (s *sessions) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	kind := "clear"
	if c.Forget {
		kind = "delete"
	}
	return s.replace(ctx, kind, storedriver.Replace{Write: c.Write})
}

func (s *sessions) Fork(ctx context.Context, f storedriver.Fork) (storedriver.Verdict, error) {
	return s.replace(ctx, "fork", storedriver.Replace{Write: f.Write, New: f.New})
}

// replace makes a write of a kind of replace_v1.
func (s *sessions) replace(ctx context.Context, kind string, r storedriver.Replace) (storedriver.Verdict, error) {
	fences, ns, subs, of := []int64{}, []int64{}, []int64{}, []int64{}
	idsOf, ids, messages, pinned := []int64{}, [][]byte{}, [][]byte{}, []bool{}
	for i, e := range r.New {
		fences, ns, subs = append(fences, e.Place.Fence), append(ns, e.Place.N), append(subs, e.Place.Sub)
		pinned = append(pinned, e.Pinned)
		for _, m := range e.Messages {
			of, messages = append(of, int64(i+1)), append(messages, m)
		}
		for _, id := range append([]string{e.ID}, e.Also...) {
			if id != "" {
				idsOf, ids = append(idsOf, int64(i+1)), append(ids, []byte(id))
			}
		}
	}
	args := append(s.access(r.Access), r.N, r.Op, kind, placeArg(r.HistoryUpTo), placeArg(r.From), placeArg(r.To), fences, ns, pinned, subs,
		of, notNull(messages), idsOf, ids, int64(lockedmemory.MaxSub))
	return s.verdict(ctx, "replace_v1", args)
}

// placeArg is a place as the functions take it.
func placeArg(p lockedmemory.Place) []int64 { return []int64{p.Fence, p.N, p.Sub} }

func (s *sessions) Retention() storedriver.Retention { return s.keep }

func (s *sessions) AcrossProcesses() bool { return true }
