package distlock

import (
	"sync"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/seam"
	"github.com/belugalock/belugalock/internal/lastwrite"
)

// init gives packages fencing and lastwrite their functions.
func init() {
	seam.OfDistlock = seam.Functions[*Locker, *Lease, Options]{
		Driver:     func(l *Locker) driver.Driver { return l.driver },
		Options:    func(l *Locker) Options { return l.opts },
		Locker:     func(le *Lease) *Locker { return le.grant.locker },
		Awaited:    func(le *Lease) int64 { return le.awaited.Load() },
		Since:      func(le *Lease) int64 { return le.since },
		Ask:        (*Locker).ask,
		Attached:   func(le *Lease) *sync.Map { return &le.attached },
		RaiseToken: (*Lease).raiseToken,
	}
	lastwrite.ReleaseWith = func(le any, write func(owner string) (driver.ReleaseReply, error)) {
		le.(*Lease).releaseWith(write)
	}
}
