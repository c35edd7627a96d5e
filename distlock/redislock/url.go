package redislock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Schemes are the URL schemes that ParseURL accepts, with spaces between them.
const Schemes = "redis:// rediss:// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster://"

// ParseURL makes the Redis client of a URL. The caller closes this client. ParseURL does no I/O: if
// a server does not answer, the first command fails.
//
//	redis://user:password@host:6379/0
//	    one node; a *redis.Client
//	redis+sentinel://user:password@host:26379,host:26379/0?master_name=NAME
//	    the master that these Sentinels name; a *redis.Client
//	redis+cluster://user:password@host:6379,host:6379
//	    the Cluster of these nodes; a *redis.ClusterClient
//
// The default port is 6379, for Sentinels 26379. The default database is 0. A Cluster has no other.
// Percent-encode special characters everywhere, most of all @, / and &.
//
// User and password are those of Redis. The parameters sentinel_username and sentinel_password are
// those of the Sentinels.
//
// With rediss instead of redis, all connections use TLS. Each server needs a certificate that is
// valid for the first host of the URL, from an authority that the system trusts. On Unix, the
// environment variables SSL_CERT_FILE and SSL_CERT_DIR of package crypto/x509 name other
// authorities. An untrusted certificate fails the first operation. A program with an authority or a
// certificate of its own makes its client itself, with a TLSConfig. The parameter skip_verify=true
// trusts every certificate: do not use it.
//
// Other parameters are those of redis.ParseURL, redis.ParseFailoverURL and redis.ParseClusterURL of
// go-redis, such as pool_size and read_timeout. ParseURL refuses parameters that send commands to
// replicas, because replicas lag behind. ContextTimeoutEnabled is always on, see [New].
// Two defaults differ from go-redis, so that clients notice a failover in time: dialer_retries is 1
// with Sentinels, and a client reloads the nodes of a Cluster after 1 second.
//
// A URL that is not valid is refused with distlock.ErrInvalidOption. The error shows no part of a
// password.
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
	scheme, rest, found := strings.Cut(rawURL, "://")
	switch {
	case !found || strings.ContainsAny(scheme, ":/?#@"): // such a text may be part of a password
		return nil, fmt.Errorf("it has no scheme: write one of %s", Schemes)
	case !slices.Contains(strings.Fields(Schemes), scheme+"://"):
		return nil, fmt.Errorf("the scheme %q is not known: write one of %s", scheme, Schemes)
	}
	a, err := parseAddress(rest)
	if err != nil {
		return nil, err
	}
	switch base, kind, _ := strings.Cut(scheme, "+"); kind {
	case "sentinel":
		return failoverOptions(base, a)
	case "cluster":
		return clusterOptions(base, a)
	default:
		return nodeOptions(base, a)
	}
}

func nodeOptions(scheme string, a address) (*redis.Options, error) {
	if strings.Contains(a.hosts, ",") {
		return nil, fmt.Errorf("%s:// takes one host: for several, write %[1]s+sentinel:// or %[1]s+cluster://", scheme)
	}
	if a.hosts == "" || a.hosts[0] == ':' {
		a.hosts = "localhost" + a.hosts
	}
	location, err := a.url(scheme, "6379")
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(location)
	if err != nil {
		return nil, fmt.Errorf("%w (the parameters are those of redis.ParseURL of go-redis)", err)
	}
	options.Username, options.Password = a.credentials()
	options.ContextTimeoutEnabled = true
	return options, checkPool(options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns)
}

func failoverOptions(scheme string, a address) (*redis.FailoverOptions, error) {
	secret := a.query.Has("password") || a.query.Has("sentinel_password")
	username, password := a.credentials()
	if a.user == nil {
		username, password = a.take("username"), a.take("password")
	}
	sentinelUsername, sentinelPassword := a.take("sentinel_username"), a.take("sentinel_password")
	location, err := a.url(scheme, "26379")
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseFailoverURL(location)
	if err != nil && secret { // go-redis quotes unknown parameters, and a password with a bare & ends in one
		err = errors.New("a parameter is not known or has a wrong value, and may be a part of a password: " +
			"write a & in a password as %26")
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w (the parameters are those of redis.ParseFailoverURL of go-redis, "+
			"sentinel_username and sentinel_password)", err)
	case options.MasterName == "":
		return nil, errors.New("it has no master_name: add ?master_name=NAME, " +
			"the name that the Sentinels know the master by")
	case options.ReplicaOnly, options.RouteByLatency, options.RouteRandomly:
		return nil, errReplicas
	}
	// To dial the master, go-redis asks the Sentinels, with retries of its own. With the default of
	// DialerRetries it takes half a minute to report that no Sentinel answers.
	options.DialerRetries = cmp.Or(options.DialerRetries, 1)
	options.Username, options.Password = username, password
	options.SentinelUsername, options.SentinelPassword = sentinelUsername, sentinelPassword
	options.ContextTimeoutEnabled = true
	return options, checkPool(options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns)
}

func clusterOptions(scheme string, a address) (*redis.ClusterOptions, error) {
	if strings.Trim(a.path, "/") != "" || a.query.Has("db") {
		return nil, errors.New("a Cluster has no databases to choose from: leave the database out")
	}
	location, err := a.url(scheme, "6379")
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseClusterURL(location)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w (the parameters are those of redis.ParseClusterURL of go-redis)", err)
	case options.ReadOnly, options.RouteByLatency, options.RouteRandomly:
		return nil, errReplicas
	}
	// go-redis does not reload the nodes of a Cluster when a master refuses connections. The locks
	// do. With the default of a minute, the data beside the locks would stay out of reach for so
	// long.
	options.ClusterStateReloadInterval = time.Second
	options.Username, options.Password = a.credentials()
	options.ContextTimeoutEnabled = true
	return options, checkPool(options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns)
}

var errReplicas = errors.New("read_only, replica_only, route_by_latency and route_randomly send commands " +
	"to replicas, which lag behind their master: leave them out")

// checkPool refuses sizes with which go-redis panics, for a Cluster only at the first command.
func checkPool(sizes ...int) error {
	for _, size := range sizes {
		if size < 0 || size > 65535 {
			return errors.New("pool_size, min_idle_conns, max_idle_conns and max_active_conns must be 0 to 65535; " +
				"0 is the default")
		}
	}
	return nil
}
