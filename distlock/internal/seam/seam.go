// Package seam gives package fencing what distlock does not show to applications.
package seam

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Functions are those of distlock, whose types this package cannot import.
type Functions[Locker, Lease, Options any] struct {
	OfLocker   func(Locker) OfLocker[Options]
	OfLease    func(Lease) OfLease[Locker]
	Attach     func(lease Lease, key any, create func() any) any
	RaiseToken func(lease Lease, ctx context.Context, above int64) error
}

// OfLocker is what a Locker has.
type OfLocker[Options any] struct {
	Driver  driver.Driver
	Options Options
}

// OfLease is what a Lease has.
type OfLease[Locker any] struct {
	Locker  Locker
	Awaited int64
}

// OfDistlock is the Functions of distlock, whose init sets them.
var OfDistlock any

// Call has the settings of one acquisition.
type Call struct {
	TTL   time.Duration
	Wait  time.Duration // negative: until ctx ends; of a single attempt it bounds the time for the answer
	Frees bool          // see driver.AcquireRequest
	Work  string        // see fencing.ForWork
}
