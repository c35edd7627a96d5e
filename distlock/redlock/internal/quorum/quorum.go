// Package quorum keeps one lock on several independent drivers, the nodes. The lock survives the loss
// of a minority of the nodes, and its fencing tokens rise. docs/design/redlock.md states the protocol.
package quorum

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Node is one of the nodes. Its Driver has Capabilities.Exact. It may be an [Upper].
type Node struct {
	Name   string // as host:port
	Driver driver.Driver
}

// Upper is implemented by the Driver of a node whose server can restart without its locks.
type Upper interface {
	// Up returns for how long the server is up at least. It returns at once.
	Up() time.Duration
}

// New makes the driver of a lock on an odd number of nodes, at least 3. It closes the nodes' drivers
// with itself. A node whose server is up for less than restartDelay does not count. A restartDelay of
// 0 means the largest TTL that the driver has seen. A negative one means that all nodes count.
func New(nodes []Node, restartDelay time.Duration) driver.Driver {
	return &quorum{nodes: nodes, restartDelay: restartDelay}
}

type quorum struct {
	nodes        []Node
	restartDelay time.Duration
}

func (q *quorum) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "redlock", Shared: true, FenceBlock: 255}
}

func (q *quorum) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, driver.ErrNotDone
}

func (q *quorum) Raise(context.Context, driver.RaiseRequest) (driver.RaiseReply, error) {
	return driver.RaiseReply{}, driver.ErrNotDone
}

func (q *quorum) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	for i := range replies {
		replies[i].Err = driver.ErrNotDone
	}
	return replies
}

func (q *quorum) Release(context.Context, driver.ReleaseRequest) (driver.ReleaseReply, error) {
	return driver.ReleaseReply{}, driver.ErrNotDone
}

func (q *quorum) Inspect(context.Context, driver.Name) (driver.State, error) {
	return driver.State{}, driver.ErrNotDone
}

// Listen implements driver.Listener.
func (q *quorum) Listen(context.Context, driver.Name, string) (<-chan driver.Wake, func(), error) {
	return nil, func() {}, nil
}

func (q *quorum) Close() error {
	for _, n := range q.nodes {
		if err := n.Driver.Close(); err != nil {
			return err
		}
	}
	return nil
}
