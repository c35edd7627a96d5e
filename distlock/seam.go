package distlock

import (
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/seam"
	"github.com/belugalock/belugalock/internal/lastwrite"
)

// init gives packages fencing and lastwrite their functions.
func init() {
	seam.OfDistlock = seam.Functions[*Locker, *Lease, Options]{
		OfLocker: func(l *Locker) seam.OfLocker[Options] {
			return seam.OfLocker[Options]{Driver: l.driver, Options: l.opts}
		},
		OfLease:    (*Lease).ofLease,
		Attach:     (*Lease).attach,
		RaiseToken: (*Lease).raiseToken,
	}
	lastwrite.ReleaseWith = func(le any, write func(owner string) (driver.ReleaseReply, error)) {
		le.(*Lease).releaseWith(write)
	}
}
