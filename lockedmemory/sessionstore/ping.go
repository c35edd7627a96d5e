package sessionstore

import "context"

// Ping returns nil if the service answers a read, for readiness probes. The advice is for operators: one
// sentence for each setting of the service that harms sessions.
func (s *Store[M, D]) Ping(ctx context.Context) (advice []string, err error) {
	r := &request{ctx: ctx, op: opPing}
	if err = ctx.Err(); err == nil {
		advice, err = s.driver.Ping(ctx)
	}
	return advice, r.callError(err)
}
