package redislock

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Schemes are the URL schemes that ParseURL accepts, with spaces between them.
const Schemes = "redis:// rediss:// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster:// " +
	"valkey:// valkeys:// valkey+sentinel:// valkeys+sentinel:// valkey+cluster:// valkeys+cluster:// unix://"

// ParseURL makes the Redis client of a URL. The caller closes this client. ParseURL sends nothing:
// if a server does not answer, the first command fails.
//
//	redis://user:password@host:6379/0
//	    one node; a *redis.Client
//	unix://user:password@/path/to/redis.sock?db=0
//	    one node over its Unix socket; a *redis.Client
//	redis+sentinel://user:password@host:26379,host:26379/0?master_name=NAME
//	    the master that these Sentinels name; a *redis.Client
//	redis+cluster://user:password@host:6379,host:6379
//	    the Cluster of these nodes; a *redis.ClusterClient
//
// valkey in a scheme means the same as redis. The default port is 6379, for Sentinels 26379. The
// default database is 0. A Cluster has no other. Percent-encode special characters, such as @, /
// and &.
//
// User and password are those of Redis. The parameters sentinel_username and sentinel_password are
// those of the Sentinels.
//
// With rediss or valkeys, all connections use TLS. Each node and each Sentinel needs a certificate
// for its own address: the address in the URL, or the one that the Sentinels or the Cluster return.
// These parameters change this. ParseURL reads the files once, as PEM.
//
//	tls_server_name=NAME  every certificate has to be valid for NAME instead
//	tls_ca=FILE           trusts the authorities in FILE alone; default: those of the system
//	tls_cert=FILE         presents this certificate, with tls_key
//	tls_key=FILE          the private key of tls_cert
//	skip_verify=true      trusts every certificate: do not use it
//
// An untrusted certificate fails the first operation.
//
// Other parameters are those of redis.ParseURL, redis.ParseFailoverURL and redis.ParseClusterURL of
// go-redis, such as pool_size and read_timeout. ParseURL refuses parameters that send commands to
// replicas, because replicas lag behind. ContextTimeoutEnabled is always on, see [New].
// Two defaults differ from go-redis, so that clients notice a failover in time: dialer_retries is 1
// with Sentinels, and a client reloads the nodes of a Cluster after 1 second.
//
// A URL that is not valid is refused with distlock.ErrInvalidOption, also if its files cannot be
// read. The error shows no part of a password.
func ParseURL(rawURL string) (redis.UniversalClient, error) {
	options, err := parseOptions(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: lock URL: %w", distlock.ErrInvalidOption, err)
	}
	switch o := options.(type) {
	case *redis.FailoverOptions:
		return redis.NewFailoverClient(o), nil
	case *redis.ClusterOptions:
		return redis.NewClusterClient(o), nil
	default:
		return redis.NewClient(o.(*redis.Options)), nil
	}
}

// OpenDriver makes a driver over the client of rawURL, see [ParseURL]. The driver's Close also
// closes this client.
func OpenDriver(rawURL string) (driver.Driver, error) {
	client, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	s := newService(client)
	s.ownsClient = true
	return s, nil
}

// TransportOf returns the transport of a driver of this package, or nil. It is for packages like
// redisstore that keep their data beside the locks.
func TransportOf(d driver.Driver) *redisconn.Transport {
	if s, ok := d.(*service); ok {
		return s.redis
	}
	return nil
}

// parseOptions returns *redis.Options, *redis.FailoverOptions or *redis.ClusterOptions.
func parseOptions(rawURL string) (any, error) {
	a, err := parseAddress(rawURL)
	if err != nil {
		return nil, err
	}
	secure, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	switch a.kind {
	case "sentinel":
		return failoverOptions(a, secure)
	case "cluster":
		return clusterOptions(a, secure)
	default:
		return nodeOptions(a, secure)
	}
}

func nodeOptions(a address, secure *tls.Config) (*redis.Options, error) {
	switch {
	case a.server == "unix":
		if a.hosts != "" || strings.Trim(a.path, "/") == "" {
			return nil, errors.New("unix:// takes the path of a socket and no host: write unix:///path/to/redis.sock, " +
				"and ?db=1 for a database")
		}
	case strings.Contains(a.hosts, ","):
		return nil, fmt.Errorf("%s:// takes one host: for several, write %[1]s+sentinel:// or %[1]s+cluster://", a.server)
	case a.hosts == "", a.hosts[0] == ':':
		a.hosts = "localhost" + a.hosts
	}
	options, err := parse(redis.ParseURL, "redis.ParseURL", a, "6379")
	if err != nil {
		return nil, err
	}
	options.Username, options.Password = a.credentials()
	options.TLSConfig, options.ContextTimeoutEnabled = secure, true
	return options, nil
}

func failoverOptions(a address, secure *tls.Config) (*redis.FailoverOptions, error) {
	sentinelUsername, sentinelPassword := a.take("sentinel_username"), a.take("sentinel_password")
	options, err := parse(redis.ParseFailoverURL, "redis.ParseFailoverURL", a, "26379")
	switch {
	case err != nil:
		return nil, err
	case options.MasterName == "":
		return nil, errors.New("it has no master_name: add ?master_name=NAME, " +
			"the name that the Sentinels know the master by")
	}
	// To dial the master, go-redis asks the Sentinels, with retries. With the default of
	// DialerRetries, the error that no Sentinel answers takes half a minute.
	options.DialerRetries = cmp.Or(options.DialerRetries, 1)
	if a.user != nil {
		options.Username, options.Password = a.credentials()
	}
	options.SentinelUsername, options.SentinelPassword = sentinelUsername, sentinelPassword
	options.TLSConfig, options.ContextTimeoutEnabled = secure, true
	return options, nil
}

func clusterOptions(a address, secure *tls.Config) (*redis.ClusterOptions, error) {
	if strings.Trim(a.path, "/") != "" || a.query.Has("db") {
		return nil, errors.New("a Cluster has no databases to choose from: leave the database out")
	}
	options, err := parse(redis.ParseClusterURL, "redis.ParseClusterURL", a, "6379")
	if err != nil {
		return nil, err
	}
	// When a master refuses connections, go-redis does not reload the nodes of a Cluster, and the
	// locks do. With the default of a minute, the data beside the locks would be unavailable for a
	// minute.
	options.ClusterStateReloadInterval = time.Second
	options.Username, options.Password = a.credentials()
	options.TLSConfig, options.ContextTimeoutEnabled = secure, true
	return options, nil
}

// parse gives the address to a parser of go-redis.
func parse[T any](parser func(string) (*T, error), name string, a address, port string) (*T, error) {
	location, err := a.url(port)
	if err != nil {
		return nil, err
	}
	options, err := parser(location)
	if err != nil && a.secret { // ⚑ go-redis quotes an unknown parameter, as the rest of a password after an &
		return nil, errors.New("a parameter is not known or has a wrong value, and may be a part of a password: " +
			"correct it, and write an & in a password as %26")
	}
	if err != nil {
		return nil, fmt.Errorf("%w (the parameters are those of %s of go-redis); redislock.ParseURL names some more",
			err, name)
	}
	return options, nil
}
