package distlock

import "github.com/belugalock/belugalock/distlock/driver"

// watchLosses has leases end when the driver reports that their grant has ended.
func (l *Locker) watchLosses() (stop func()) {
	notifier, ok := driver.As[driver.LossNotifier](l.driver)
	if !ok {
		return func() {}
	}
	return notifier.NotifyLosses(func(_ driver.Name, owner string) {
		l.background(func() { l.lossReported(owner) })
	})
}

// lossReported has the lease end that holds the grant of the owner.
func (l *Locker) lossReported(owner string) {
	l.mu.Lock()
	g := l.grants[owner]
	l.mu.Unlock()
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.holder.isOver() {
		_ = g.holder.lossLocked(errNotMine)
	}
}
