package pgstore

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// colocated returns the lock of the last write of a lease, if the lock is in the same database. In
// another schema, append_release_v1 does not find it. A wrapper of the lock has to see each release.
func (s *sessions) colocated(ctx context.Context, a storedriver.Append) (lock postgres.Locks, ok bool) {
	if !lastwrite.Is(ctx, a.Lease) {
		return nil, false
	}
	locks := fencing.Driver(fencing.Locker(a.Lease))
	lock, ok = locks.(postgres.Locks)
	return lock, ok && (s.locks == locks || s.source != nil && s.source == lock.Source())
}

// released is the reply of append_release_v1.
type released struct {
	storedriver.Verdict
	isReleased       bool
	channel, message zeronull.Text // of a handoff
}

// appendRelease appends, and releases the lock in the same statement, see lastwrite.ReleaseWith.
func (s *sessions) appendRelease(ctx context.Context, lease *distlock.Lease, lock postgres.Locks, args []any,
) (v storedriver.Verdict, err error) {
	lastwrite.ReleaseWith(lease, func(owner string) (driver.ReleaseReply, error) {
		if owner == "" {
			v, err = s.verdict(ctx, "append_v1", args)
			return driver.ReleaseReply{}, err
		}
		all := append([]any{fencing.Options(fencing.Locker(lease)).Namespace, owner}, args...)
		var reply released
		reply, err = postgres.One(ctx, s.pool, scanReleased, "append_release_v1", all...)
		if err == nil {
			message := string(reply.message)
			if s.source != nil { // ⚑ its pool hides that a commit was cancelled, so the waiter has to ask
				message, _, _ = strings.Cut(message, ":")
			}
			lock.Notify(string(reply.channel), message)
		}
		v = reply.Verdict
		return driver.ReleaseReply{Released: reply.isReleased}, err
	})
	return v, err
}

func scanReleased(row pgx.CollectableRow) (r released, err error) {
	err = row.Scan(&r.Outcome, &r.Mark.Fence, &r.Mark.N, &r.isReleased, &r.channel, &r.message)
	return r, err
}
