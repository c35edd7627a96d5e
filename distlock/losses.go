package distlock

import "github.com/belugalock/belugalock/distlock/driver"

// watchLosses has leases end when the driver reports that their grant has ended.
func (l *Locker) watchLosses() (stop func()) {
	notifier, ok := driver.As[driver.LossNotifier](l.driver)
	if !ok {
		return func() {}
	}
	return notifier.NotifyLosses(func(_ driver.Name, owner string) {
		l.background(func() {
			if lease := l.leaseOf(owner); lease != nil {
				_ = lease.lose(errNotMine)
			}
		})
	})
}

// leaseOf returns the lease that holds the grant of the owner, or nil.
func (l *Locker) leaseOf(owner string) *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lease := l.leases.first; lease != nil; lease = lease.listed.next {
		if lease.owner == owner {
			return lease
		}
	}
	return nil
}
