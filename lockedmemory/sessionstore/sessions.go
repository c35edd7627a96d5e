package sessionstore

import (
	"context"
	"iter"
)

// Sessions yields the names of the sessions that have an exchange stored, in no order, for jobs as clean-up
// and export. A name is what the KeyFunc of the session returned. All stores over one namespace of the
// service share the names.
//
// A session that has an exchange during the whole iteration is yielded at least once, and may be twice. A
// session without an exchange is not: it was cleared or deleted, has expired, or was never written to. The
// service reads its names a page at a time, of all programs that share it, and stays available between the
// pages. If a Redis restarts, fails over or moves slots during the iteration, sessions may be left out:
// begin again.
//
// An error ends the sequence: distlock.ErrUnavailable, distlock.ErrRefused, or the error of ctx. Each range
// over the sequence begins anew.
func (s *Store[M, D]) Sessions(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		r := &request{ctx: ctx, op: opSessions}
		for after, more := "", true; more; more = after != "" {
			var names []string
			err := ctx.Err()
			if err == nil {
				names, after, err = s.driver.Sessions(ctx, after)
			}
			if err != nil {
				yield("", r.callError(err))
				return
			}
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}
