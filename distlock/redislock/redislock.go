package redislock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/rediskinds"
)

// New makes a Locker for the Redis of client. The caller closes client after the Locker. Nil opts
// mean the defaults. New does no I/O. It refuses a nil client, a client that cannot keep a lock,
// and options out of range with distlock.ErrInvalidOption.
//
// The Locker has connections of its own, with the options of client, so a pool without a free
// connection delays no call. The hooks of client do not see the calls. A client that is neither
// *redis.Client nor *redis.ClusterClient sends the calls itself.
func New(client redis.UniversalClient, opts *distlock.Options) (*distlock.Locker, error) {
	d, err := NewDriver(client)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, opts)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

// NewDriver makes a driver for the Redis of client. The driver's Close, or that of its Locker,
// closes the driver's connections, see [New]. The caller closes client.
func NewDriver(client redis.UniversalClient) (driver.Driver, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the Redis client is nil: make one with redis.NewClient", distlock.ErrInvalidOption)
	}
	if _, ok := client.(*redis.Ring); ok {
		return nil, fmt.Errorf("%w: a redis.Ring moves keys to another node when their node is down, so it keeps no lock "+
			"and no session: use redis.NewClient", distlock.ErrInvalidOption)
	}
	return newLockDriver(client), nil
}

func newLockDriver(client redis.UniversalClient) *lockDriver {
	d := &lockDriver{client: client, transport: redisconn.New(client, nil), channel: rand.Text()}
	d.wakes = redisconn.NewWakes(d.transport, d.explain, d.parseMessage)
	return d
}

// lockDriver is the driver.Driver on Redis.
type lockDriver struct {
	client     redis.UniversalClient
	ownsClient bool                 // Close closes the client, too
	transport  *redisconn.Transport // over the client
	channel    string               // the end of the name of the driver's channels
	wakes      *redisconn.Wakes[driver.Wake]
	asks       sync.Map // the listeners of NotifyAsks
}

func (d *lockDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "redis", AcrossProcesses: true, Queues: true}
}

func (d *lockDriver) explain(err error) error { return rediskinds.Explain(d.client, "redislock", err) }

// Close closes the driver's own connections and its subscription. The caller's client stays open.
func (d *lockDriver) Close() error {
	d.wakes.Close()
	d.transport.Close()
	if d.ownsClient {
		return d.client.Close()
	}
	return nil
}
