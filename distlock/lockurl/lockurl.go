// Package lockurl opens a Locker by URL, so that the lock service is a line of configuration.
//
//	mem://              locks of this process, see memlock
//	redis://            one Redis node, see redislock.ParseURL; with TLS: rediss://
//	unix://             one Redis node over its Unix socket
//	redis+sentinel://   the master that Sentinels name; with TLS: rediss+sentinel://
//	redis+cluster://    a Cluster; with TLS: rediss+cluster://
//	redlock+redis://    a quorum of independent Redis nodes, see redlock.ParseURL; with TLS: redlock+rediss://
//	postgres://         a database of PostgreSQL, see pglock.OpenDriver; the same: postgresql://
//
// For Valkey, valkey and valkeys stand for redis and rediss. Three parameters are for the Locker, with
// every scheme: namespace, ttl and wait fill the field of distlock.Options with that name.
//
//	redis://localhost:6379/0?namespace=chat&ttl=10s&wait=1m
//
// A program that keeps its data on the servers of the locks makes a client with redislock.ParseURL, or
// a pool with pgxpool.New.
//
// lockurl compiles the clients of all backends into the program. A program of one backend saves that
// with redislock.New or pglock.New.
package lockurl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/redisurl"
)

// backends lists the URL schemes of each backend, and the function that makes its driver. The
// driver closes all that this function opens.
var backends = []struct {
	schemes string
	open    func(rawURL string) (driver.Driver, error)
}{
	{"mem://", openMemory},
	{redislock.Schemes, redislock.OpenDriver},
	{redlock.Schemes, redlock.OpenDriver},
	{pglock.Schemes, pglock.OpenDriver},
}

// Open makes a Locker for the lock service of rawURL. The Locker's Close closes the client, too.
// Nil opts mean the defaults.
//
// A URL or an option that is not valid is refused with distlock.ErrInvalidOption, and so is an option
// that both rawURL and opts set. The error shows no part of a password. If the service does not
// answer, the first operation fails with distlock.ErrUnavailable; if a database lacks the schema, it fails
// with distlock.ErrRefused. Open logs a warning if the URL asks for TLS without a check of the server's
// certificate: with skip_verify=true, or sslmode=require without sslrootcert. It also warns of Sentinels
// whose failover lasts longer than a lease, for which it asks them up to a second.
func Open(ctx context.Context, rawURL string, opts *distlock.Options) (*distlock.Locker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var options distlock.Options
	if opts != nil {
		options = *opts
	}
	rest, query, err := takeParameters(rawURL, &options)
	if err != nil {
		return nil, err
	}
	d, err := OpenDriver(rest)
	if err != nil {
		return nil, err
	}
	locker, err := distlock.New(d, &options)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	options = fencing.Options(locker)
	if delay, _ := time.ParseDuration(query.Get("restart_delay")); delay > 0 && delay < options.TTL {
		return nil, errors.Join(invalid(fmt.Sprintf("restart_delay is shorter than the ttl of %s: "+
			"set at least the largest TTL of all processes, or leave it out", options.TTL)), locker.Close(ctx))
	}
	if skip, _ := strconv.ParseBool(query.Get("skip_verify")); skip {
		options.Logger.Warn("lockurl: the URL has skip_verify=true, so that any server can pose as " +
			"the lock service and read its password: use tls_ca or tls_server_name instead")
	}
	if query.Get("sslmode") == "require" && query.Get("sslrootcert") == "" {
		options.Logger.Warn("lockurl: the URL has sslmode=require without sslrootcert, so that any " +
			"server can pose as the lock service and read its password: use sslmode=verify-full instead")
	}
	redisurl.WarnOfFailover(ctx, rest, options.TTL, options.Logger)
	return locker, nil
}

// OpenDriver makes the driver of rawURL, for a store beside the locks, or for several Lockers. It
// refuses the parameters of the Locker: namespace, ttl and wait. It connects to no server. Its errors
// are those of [Open].
func OpenDriver(rawURL string) (driver.Driver, error) {
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
		return nil, invalid("mem:// takes nothing after it but namespace, ttl and wait: " +
			"its locks are those of this Locker alone")
	}
	return memlock.NewDriver(), nil
}

func invalid(text string) error {
	return fmt.Errorf("%w: lock URL: %s", distlock.ErrInvalidOption, text)
}
