package redislock

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisurl"
)

// Schemes are the URL schemes that ParseURL accepts, with spaces between them.
const Schemes = redisurl.Schemes

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
// replicas, because replicas lag behind. ContextTimeoutEnabled is always on.
// Two defaults differ from go-redis, so that clients notice a failover in time: dialer_retries is 1,
// and a client reloads the nodes of a Cluster after 1 second.
//
// A URL that is not valid is refused with distlock.ErrInvalidOption, also if its files cannot be
// read. The error shows no part of a password.
func ParseURL(rawURL string) (redis.UniversalClient, error) {
	client, err := redisurl.NewClient(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: lock URL: %w", distlock.ErrInvalidOption, err)
	}
	return client, nil
}

// OpenDriver makes a driver over the client of rawURL, see [ParseURL]. The driver's Close also
// closes this client.
func OpenDriver(rawURL string) (driver.Driver, error) {
	client, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	d := newLockDriver(client)
	d.ownsClient = true
	return d, nil
}
