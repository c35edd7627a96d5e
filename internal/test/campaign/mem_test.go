package campaign

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// memService is the lock service and the store of a process that has both in its memory.
type memService struct {
	locks    driver.Driver
	sessions storedriver.Driver
	failing  [16]atomic.Int64 // by Locker: until when its renewals fail
}

func newMemService() *memService {
	sessions, err := memstore.NewDriver(nil)
	if err != nil {
		panic(err)
	}
	return &memService{locks: memlock.NewDriver(), sessions: sessions}
}

func (m *memService) locker(n int, opts *distlock.Options) (*distlock.Locker, error) {
	return distlock.New(&faulty{
		Driver: m.locks, failing: &m.failing[n],
	}, opts)
}

func (m *memService) store() (memory, error) {
	return sessionstore.New(m.sessions, lockedmemory.SessionKey, codec{}, nil)
}

// faulty is the driver of one of several Lockers. It outlives that one, and may fail to renew.
type faulty struct {
	driver.Driver
	failing *atomic.Int64
}

func (f *faulty) Unwrap() driver.Driver { return f.Driver }

var errFaulty = errors.New("the service does not answer")

func (f *faulty) Close() error { return nil }

func (f *faulty) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	if now() > f.failing.Load() {
		return f.Driver.Extend(ctx, reqs)
	}
	replies := make([]driver.ExtendReply, len(reqs))
	for i := range replies {
		replies[i].Err = errFaulty
	}
	return replies
}
