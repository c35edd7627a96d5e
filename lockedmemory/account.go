package lockedmemory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// account collects the figures of a turn: its wait, its hold and its stored exchanges.
type account struct {
	op     *distlock.Operation
	around *account // of the turn around this one
	joins  bool     // a lease around it
	asked  time.Time
	began  bool
	stored atomic.Int64
}

// session identifies a session in the process, as leases do.
type session struct {
	locker *distlock.Locker
	key    string
}

// accountKey finds the account of the turn of a session.
type accountKey session

// around returns the account of the turn that ctx belongs to, or nil.
func (s session) around(ctx context.Context) *account {
	a, _ := ctx.Value(accountKey(s)).(*account)
	return a
}

// account returns the account of a turn that begins.
func (s session) account(ctx context.Context, op *distlock.Operation) *account {
	_, joins := s.locker.FromContext(ctx, s.key)
	return &account{op: op, around: s.around(ctx), joins: joins, asked: time.Now()}
}

// run runs the function of the turn. A turn that joins a lease, or has no lock, holds nothing itself.
func (a *account) run(ctx context.Context, s session, fn func(context.Context) error) error {
	a.began, a.op.Wait = true, time.Since(a.asked)
	if lease, leased := s.locker.FromContext(ctx, s.key); leased && !a.joins {
		defer a.hold(lease)()
	}
	return fn(context.WithValue(ctx, accountKey(s), a))
}

// hold returns a function that notes how long the lease was held until then. A lost lease was held until
// its loss.
func (a *account) hold(lease *distlock.Lease) (stop func()) {
	began, ended := time.Now(), make(chan time.Time, 1)
	watch := context.AfterFunc(lease.Context(), func() { ended <- time.Now() })
	return func() {
		until := time.Now()
		if !watch() {
			until = <-ended
		}
		a.op.Held = until.Sub(began)
	}
}

// close completes the operation. Without the lock, the turn has waited until now.
func (a *account) close() {
	if !a.began {
		a.op.Wait = time.Since(a.asked)
	}
	a.op.Exchanges = int(a.stored.Load())
}

// note counts a stored exchange, also for the turns around the turn.
func (a *account) note() {
	for ; a != nil; a = a.around {
		a.stored.Add(1)
	}
}
