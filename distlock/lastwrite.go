package distlock

import "github.com/belugalock/belugalock/distlock/driver"

// releaseWith is lastwrite.ReleaseWith. docs/design/sessions.md has its states.
func (le *Lease) releaseWith(write func(owner string) (driver.ReleaseReply, error)) {
	owner := le.beginLastWrite()
	reply, err := driver.ReleaseReply{}, errCallDidNotReturn // unless write returns
	defer func() {
		if owner != "" {
			le.endLastWrite(reply, err)
		}
	}()
	reply, err = write(owner)
}

// beginLastWrite returns the owner that the write is to release. It returns "" if the write must
// leave the lock alone.
//
// ⚑ A lock whose acquire was sent more than once is released with a tombstone. From now on the backend may
// grant the lock to another owner, so neither a renewal nor a local handoff may follow.
func (le *Lease) beginLastWrite() (owner string) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if le.errLocked() != nil || le.state == releasing || le.lastWrite != noLastWrite ||
		g.copiesMayArrive || g.inQueue.Wanted() {
		return ""
	}
	le.lastWrite = lastWriteSent
	g.pauseRenewalLocked()
	return g.owner
}

// endLastWrite applies the answer. If no copy of the write can release the lock any more, and none
// has, the lease goes on as before.
func (le *Lease) endLastWrite(reply driver.ReleaseReply, err error) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case reply.Released:
		le.lastWrite = releasedByWrite
	case reply.Replayed || driver.MayHaveEffect(err):
	default:
		le.lastWrite = noLastWrite
		if !le.isOver() {
			g.startLocked()
		}
	}
}
