// Package lockurl opens a Locker by URL, so that the lock service can be a line of configuration.
//
//	mem://                               locks of this process, see memlock
//	redis://user:password@host:6379/0    one Redis node, see redislock
//	rediss://host:6379/0                 the same over TLS
//
// The URLs of Redis take the query parameters of redis.ParseURL of go-redis, such as pool_size and read_timeout.
package lockurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

const schemes = "mem:// redis:// rediss://"

// Open makes a Locker for the lock service that rawURL names. The client it opens is closed by the Locker's Close. Nil
// opts mean the defaults.
//
// A URL or option that is out of range is refused with distlock.ErrInvalidOption; the error never shows the URL's
// password. A service that does not answer shows at the first operation, with distlock.ErrUnavailable.
func Open(ctx context.Context, rawURL string, opts *distlock.Options) (*distlock.Locker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, err := open(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: lock URL: %w", distlock.ErrInvalidOption, err)
	}
	locker, err := distlock.New(d, opts)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return locker, nil
}

func open(rawURL string) (driver.Driver, error) {
	scheme, _, found := strings.Cut(rawURL, "://")
	if !found {
		return nil, fmt.Errorf("it has no scheme: write one of %s", schemes)
	}
	switch scheme {
	case "mem":
		return openMemory(rawURL)
	case "redis", "rediss":
		return openRedis(rawURL)
	}
	return nil, fmt.Errorf("the scheme %q is not known: write one of %s", scheme, schemes)
}

func openMemory(rawURL string) (driver.Driver, error) {
	if rawURL != "mem://" {
		return nil, errors.New("mem:// takes nothing after it: its locks are those of this Locker alone")
	}
	return memlock.NewDriver(), nil
}

func openRedis(rawURL string) (driver.Driver, error) {
	options, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, withoutSecrets(rawURL, err)
	}
	options.ContextTimeoutEnabled = true // see redislock.New
	client := redis.NewClient(options)
	d, err := redislock.NewDriver(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &owned{Driver: d, client: client}, nil
}

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

func (o *owned) Close() error { return errors.Join(o.Driver.Close(), o.client.Close()) }

// withoutSecrets passes on what is wrong with a URL, unless that text could show a piece of its password.
func withoutSecrets(rawURL string, err error) error {
	u, parseErr := url.Parse(rawURL)
	if parseErr != nil || strings.Contains(u.Path, "@") {
		return errors.New("it cannot be parsed: write redis://user:password@host:port/database, with special characters " +
			"in user and password percent-encoded")
	}
	return err
}
