// Package lockurl opens a Locker by URL, so that the lock service is a line of configuration.
//
//	mem://              locks of this process, see memlock
//	redis://            one Redis node, see redislock.ParseURL
//	redis+sentinel://   the master that Sentinels name
//	redis+cluster://    a Cluster
//
// A program that keeps its data on the servers of the locks makes a client with redislock.ParseURL.
package lockurl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

// backends lists the URL schemes of each backend, and the function that makes its driver. The
// driver closes all that this function opens.
var backends = []struct {
	schemes string
	open    func(rawURL string) (driver.Driver, error)
}{
	{"mem://", openMemory},
	{redislock.Schemes, redislock.OpenDriver},
}

// Open makes a Locker for the lock service of rawURL. The Locker's Close closes the client, too.
// Nil opts mean the defaults.
//
// A URL or an option that is not valid is refused with distlock.ErrInvalidOption. The error shows
// no part of a password. If the service does not answer, the first operation fails with
// distlock.ErrUnavailable.
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
	scheme, _, found := strings.Cut(rawURL, "://")
	known := ""
	for _, backend := range backends {
		if found && slices.Contains(strings.Fields(backend.schemes), scheme+"://") {
			return backend.open(rawURL)
		}
		known += " " + backend.schemes
	}
	if !found || strings.ContainsAny(scheme, ":/?#@") { // such a text may be part of a password
		return nil, invalid("it has no scheme: write one of" + known)
	}
	return nil, invalid(fmt.Sprintf("the scheme %q is not known: write one of%s", scheme, known))
}

func openMemory(rawURL string) (driver.Driver, error) {
	if rawURL != "mem://" {
		return nil, invalid("mem:// takes nothing after it: its locks are those of this Locker alone")
	}
	return memlock.NewDriver(), nil
}

func invalid(text string) error {
	return fmt.Errorf("%w: lock URL: %s", distlock.ErrInvalidOption, text)
}
