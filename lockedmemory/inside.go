package lockedmemory

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory/internal/selfwait"
)

// session identifies a session in the process, as leases do.
type session struct {
	locker *distlock.Locker
	key    string
}

// running has the turns of the process whose functions have not returned.
var running selfwait.Set[session]

// outside refuses a call inside a turn of its session that does not have the turn's context. The call
// would wait for its own turn.
func (m *LockedMemory[M, D]) outside(ctx context.Context, op *distlock.Operation) error {
	s := session{m.locker, op.Key}
	if _, ok := m.locker.FromContext(ctx, op.Key); ok {
		return nil
	}
	began, inside := running.Inside(s)
	if !inside {
		return nil
	}
	op.Outcome = distlock.OutcomeBusy // it has not waited
	return &distlock.BusyError{Self: true, Holder: fencing.Options(m.locker).Holder, Held: time.Since(began)}
}
