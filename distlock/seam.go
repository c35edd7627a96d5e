package distlock

import (
	"context"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/seam"
	"github.com/belugalock/belugalock/internal/lastwrite"
)

// init sets the functions of packages fencing and lastwrite.
func init() {
	seam.Locker = func(le *Lease) *Locker { return le.grant.locker }
	seam.Join = (*Lease).join
	seam.Attach = (*Lease).attach
	seam.RaiseToken = (*Lease).raiseToken
	seam.Awaited = (*Lease).awaitedToken
	lastwrite.ReleaseWith = func(le any, write func(owner string) (driver.ReleaseReply, error)) {
		le.(*Lease).releaseWith(write)
	}
	seam.Background = func(l *Locker, f func(context.Context)) { l.background(func() { f(l.cleaner.Context()) }) }
	seam.Driver = func(l *Locker) driver.Driver { return l.driver }
	seam.KeyAttr = KeyMode.attr
	seam.ValidKeyMode = KeyMode.validate
	seam.Frees = CallOption(func(o *callOptions) { o.frees = true })
	seam.ForWork = func(id string) CallOption { return func(o *callOptions) { o.work = id } }
	seam.Options = func(l *Locker) Options { return l.opts }
}
