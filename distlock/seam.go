package distlock

import (
	"context"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/seam"
	"github.com/belugalock/belugalock/internal/lastwrite"
)

// init gives packages fencing and lastwrite their functions.
func init() {
	seam.OfDistlock = seam.Functions[*Locker, *Lease, Options, CallOption]{
		Locker:     func(le *Lease) *Locker { return le.grant.locker },
		Attach:     (*Lease).attach,
		RaiseToken: (*Lease).raiseToken,
		Awaited:    (*Lease).awaitedToken,
		Background: func(l *Locker, f func(context.Context)) { l.background(func() { f(l.cleaner.Context()) }) },
		Driver:     func(l *Locker) driver.Driver { return l.driver },
		Options:    func(l *Locker) Options { return l.opts },
		Frees:      func(o *callOptions) { o.frees = true },
		ForWork:    func(id string) CallOption { return func(o *callOptions) { o.work = id } },
	}
	lastwrite.ReleaseWith = func(le any, write func(owner string) (driver.ReleaseReply, error)) {
		le.(*Lease).releaseWith(write)
	}
}
