package sessionstore

import (
	"context"
	"iter"
)

// Sessions yields the names of the sessions that have an exchange stored, as the KeyFunc returned them, in
// no order. A session that has an exchange during the whole iteration is yielded at least once, unless a
// Redis restarts, fails over or moves slots. An error ends the sequence.
func (s *Store[M, D]) Sessions(ctx context.Context) iter.Seq2[string, error] {
	return allNames(ctx, opSessions, s.driver.Sessions)
}

// allNames yields the names of all pages of a list.
func allNames(ctx context.Context, op operation, page func(context.Context, string) ([]string, string, error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		r := &request{ctx: ctx, op: op}
		for after, more := "", true; more; more = after != "" {
			var names []string
			err := ctx.Err()
			if err == nil {
				names, after, err = page(ctx, after)
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

// Ping returns nil if the service answers a read. The advice is for operators: one sentence for each setting
// of the service that harms sessions.
func (s *Store[M, D]) Ping(ctx context.Context) (advice []string, err error) {
	r := &request{ctx: ctx, op: opPing}
	if err = ctx.Err(); err == nil {
		advice, err = s.driver.Ping(ctx)
	}
	return advice, r.callError(err)
}
