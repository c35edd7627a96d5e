package memlock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// unordered is a backend that notifies every waiter of a release, and keeps no order.
type unordered struct {
	driver.Driver
	mu        sync.Mutex
	listeners map[string]chan driver.Wake // by owner
}

func (u *unordered) Unwrap() driver.Driver { return u.Driver }

func (u *unordered) Capabilities() driver.Capabilities {
	c := u.Driver.Capabilities()
	c.Queues = false
	return c
}

func (u *unordered) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	req.Alive, req.Seq, req.Ticket = 0, 0, 0
	return u.Driver.Acquire(ctx, req)
}

func (u *unordered) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	reply, err := u.Driver.Release(ctx, req)
	if err == nil && reply.Released {
		u.wake(driver.Wake{})
	}
	return reply, err
}

func (u *unordered) Listen(_ context.Context, _ driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	wakes := make(chan driver.Wake, 1)
	u.listeners[owner] = wakes
	return wakes, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.listeners, owner)
	}, nil
}

// wake notifies every listener that has received its last wake.
func (u *unordered) wake(wake driver.Wake) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, wakes := range u.listeners {
		select {
		case wakes <- wake:
		default:
		}
	}
}

func TestConformance_unordered(t *testing.T) {
	drivertest.Run(t, drivertest.Service{New: func(testing.TB) driver.Driver {
		return &unordered{Driver: memlock.NewDriver(), listeners: make(map[string]chan driver.Wake)}
	}})
}
