// Package seam gives package fencing what distlock does not show to applications.
package seam

import (
	"context"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Functions are those of distlock, whose types this package cannot import.
type Functions[Locker, Lease, Options any] struct {
	Driver     func(Locker) driver.Driver
	Options    func(Locker) Options
	Locker     func(Lease) Locker
	Awaited    func(Lease) int64
	Since      func(Lease) int64
	Ask        func(locker Locker, ctx context.Context, key string, req driver.AskRequest) (driver.AskReply, error)
	Attached   func(Lease) *sync.Map
	RaiseToken func(lease Lease, ctx context.Context, above int64) error
}

// OfDistlock is the Functions of distlock, whose init sets them.
var OfDistlock any

// Call has the settings of one acquisition.
type Call struct {
	TTL   time.Duration
	Wait  time.Duration // negative: until ctx ends; of a single attempt it bounds the time for the answer
	Frees bool          // see driver.AcquireRequest
	Work  string        // see fencing.ForWork
	Turn  bool          // see fencing.ForTurn
}
