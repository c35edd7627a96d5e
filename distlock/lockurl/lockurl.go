// Package lockurl opens a Locker by URL, so that the lock service can be a line of configuration.
//
//	mem://                                                  locks of this process, see memlock
//	redis://user:password@host:6379/0                       one Redis node, see redislock
//	redis+sentinel://user:password@host:26379,host:26379/0?master_name=NAME
//	                                                        the master that these Sentinels name
//	redis+cluster://user:password@host:6379,host:6379       the Cluster that these nodes belong to
//
// With rediss in place of redis, all connections use TLS. The certificate of every server has to be valid for the first host
// of the URL, and to come from an authority that the system trusts; on Linux and other Unix systems, the environment variables
// SSL_CERT_FILE and SSL_CERT_DIR of package crypto/x509 name others. A certificate that is not good shows at the first operation, with
// distlock.ErrUnavailable and the reason. A program that brings its own authority, or a certificate of its own, makes the client itself,
// with a TLSConfig, and gives it to redislock.New. The parameter skip_verify=true trusts any certificate: do not use it.
//
// User and password are those of Redis. Those of the Sentinels, if they want any, are the parameters sentinel_username and
// sentinel_password. Ports may be left out, and are then 6379, or 26379 for Sentinels; so may the database, which a
// Cluster does not have. Special characters have to be percent-encoded everywhere, @ and / and & above all.
//
// The URLs take the query parameters of go-redis besides, such as pool_size and read_timeout: those of redis.ParseURL,
// redis.ParseFailoverURL or redis.ParseClusterURL. Refused are those that send commands to replicas, which lag behind.
// ContextTimeoutEnabled is always on, see redislock.New. Two defaults are not those of go-redis: dialer_retries is 1 with
// Sentinels, and the picture of a Cluster is renewed after a second, so that clients are not late for a fail-over.
package lockurl

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

// Open makes a Locker for the lock service that rawURL names. The client it opens is closed by the Locker's Close. Nil
// opts mean the defaults.
//
// A URL or option that is out of range is refused with distlock.ErrInvalidOption; the error never shows a piece of a
// password. A service that does not answer shows at the first operation, with distlock.ErrUnavailable.
func Open(ctx context.Context, rawURL string, opts *distlock.Options) (*distlock.Locker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, err := open(rawURL)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, opts)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

func open(rawURL string) (driver.Driver, error) {
	switch scheme, rest, err := cutScheme(rawURL, schemes); {
	case err != nil:
		return nil, invalid(err)
	case scheme == "mem" && rest != "":
		return nil, invalid(errors.New("mem:// takes nothing after it: its locks are those of this Locker alone"))
	case scheme == "mem":
		return memlock.NewDriver(), nil
	}
	client, err := NewRedisClient(rawURL)
	if err != nil {
		return nil, err
	}
	d, err := redislock.NewDriver(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &owned{Driver: d, client: client}, nil
}

func invalid(err error) error { return fmt.Errorf("%w: lock URL: %w", distlock.ErrInvalidOption, err) }

// owned closes the client with the driver.
type owned struct {
	driver.Driver
	client redis.UniversalClient
}

// Ready implements driver.Punctual, as the driver does.
func (o *owned) Ready() bool {
	punctual, ok := o.Driver.(driver.Punctual)
	return ok && punctual.Ready()
}

// Unwrap returns the driver that is closed together with its client.
func (o *owned) Unwrap() driver.Driver { return o.Driver }

// Listen implements driver.Queue, as the driver does.
func (o *owned) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return o.Driver.(driver.Queue).Listen(ctx, name, owner)
}

func (o *owned) Close() error { return errors.Join(o.Driver.Close(), o.client.Close()) }
