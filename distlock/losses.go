package distlock

import (
	"maps"
	"slices"

	"github.com/belugalock/belugalock/distlock/driver"
)

// watchLosses has leases end when the driver reports that their grant has ended.
func (l *Locker) watchLosses() (stop func()) {
	notifier, ok := driver.As[driver.LossNotifier](l.driver)
	if !ok {
		return func() {}
	}
	return notifier.NotifyLosses(func(_ driver.Name, owner string) {
		l.background(func() { l.ended(owner) })
	})
}

// ended has the lease end that holds the grant of the owner.
func (l *Locker) ended(owner string) {
	l.mu.Lock()
	grants := slices.Collect(maps.Keys(l.grants))
	l.mu.Unlock()
	for _, g := range grants {
		if g.owner == owner {
			g.mu.Lock()
			if !g.holder.isOver() {
				_ = g.holder.lossLocked(errNotMine)
			}
			g.mu.Unlock()
		}
	}
}
