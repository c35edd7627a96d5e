package subject

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redlock"
)

// The subjects on a quorum of five nodes. Setup.Addr has their addresses.
const (
	OursQuorum    = "belugalock, 5 nodes"
	OursOneDead   = "belugalock, one node dead"
	OursOneHung   = "belugalock, one node hung"
	RedsyncQuorum = "redsync, 5 nodes"
	// RedsyncFast returns at a quorum, which is an option of redsync.
	RedsyncFast = "redsync, 5 nodes, fail fast"
	// Each request of these is sent up to 3 ms later, at random, as if the nodes were far.
	OursFar    = "belugalock, 5 far nodes"
	RedsyncFar = "redsync, 5 far nodes"
)

// OnQuorum reports whether a subject needs several nodes.
func OnQuorum(name string) bool {
	switch name {
	case OursQuorum, OursOneDead, OursOneHung, OursFar, RedsyncQuorum, RedsyncFast, RedsyncFar:
		return true
	}
	return false
}

// far is the longest delay of a request to a far node.
const far = 3 * time.Millisecond

// toFar opens a subject on far nodes.
func toFar(open func(Setup) (Locker, error)) func(Setup) (Locker, error) {
	return func(s Setup) (Locker, error) {
		s.delay = far
		return open(s)
	}
}

// farConn sends late.
type farConn struct {
	net.Conn
	delay time.Duration // at most
}

func (c farConn) Write(b []byte) (int, error) {
	time.Sleep(rand.N(c.delay))
	return c.Conn.Write(b)
}

// oursQuorum is this library, as ours.
type oursQuorum struct {
	locker  *distlock.Locker
	clients []*redis.Client
}

// openOursQuorum opens the nodes without a delay after a restart: their servers are new.
func openOursQuorum(s Setup) (Locker, error) {
	o := &oursQuorum{clients: s.clients()}
	var nodes []redis.UniversalClient
	for _, client := range o.clients {
		nodes = append(nodes, client)
	}
	locker, err := redlock.New(nodes, &redlock.Options{RestartDelay: -1, Options: distlock.Options{
		TTL: s.TTL, Wait: -1, Observer: &observer{}, Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		return nil, errors.Join(err, o.closeClients())
	}
	o.locker = locker
	return o, nil
}

func (o *oursQuorum) Acquire(ctx context.Context, key string) (Held, error) {
	return o.locker.Acquire(ctx, key)
}

// TryAcquire implements Trier.
func (o *oursQuorum) TryAcquire(ctx context.Context, key string) (Held, error) {
	lease, err := o.locker.TryAcquire(ctx, key)
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, distlock.ErrNotAcquired):
		return nil, nil
	}
	return nil, err
}

func (o *oursQuorum) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(o.locker.Close(ctx), o.closeClients())
}

func (o *oursQuorum) closeClients() (err error) {
	for _, client := range o.clients {
		err = errors.Join(err, client.Close())
	}
	return err
}
