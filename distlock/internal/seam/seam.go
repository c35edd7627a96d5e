// Package seam gives package fencing the functions of distlock that are not part of its public face.
package seam

import (
	"context"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Functions are named as those of package fencing, which documents them. The types are those of distlock,
// which this package cannot import.
type Functions[Locker, Lease, Options, CallOption any] struct {
	Locker     func(Lease) Locker
	Attach     func(lease Lease, key any, create func() any) any
	RaiseToken func(lease Lease, ctx context.Context, above int64) error
	Awaited    func(Lease) int64
	Background func(Locker, func(context.Context))
	Driver     func(Locker) driver.Driver
	Options    func(Locker) Options
	Frees      CallOption
	ForWork    func(id string) CallOption
}

// OfDistlock is the Functions of distlock, whose init sets them.
var OfDistlock any
