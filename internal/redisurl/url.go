// Package redisurl makes the clients of the URLs that redislock.ParseURL documents.
package redisurl

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Schemes are the URL schemes, with spaces between them.
const Schemes = "redis:// rediss:// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster:// " +
	"valkey:// valkeys:// valkey+sentinel:// valkeys+sentinel:// valkey+cluster:// valkeys+cluster:// unix://"

// NewClient makes the client of a URL, see Parse.
func NewClient(rawURL string) (redis.UniversalClient, error) {
	options, err := Parse(rawURL)
	if err != nil {
		return nil, err
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

// Parse returns *redis.Options, *redis.FailoverOptions or *redis.ClusterOptions. No error shows a part
// of a password.
func Parse(rawURL string) (any, error) {
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

func nodeOptions(a *address, secure *tls.Config) (*redis.Options, error) {
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
	options, err := parseBy(redis.ParseURL, "redis.ParseURL", a, "6379")
	if err != nil {
		return nil, err
	}
	// With the default of DialerRetries, a refused connection is named after half a second.
	options.DialerRetries = cmp.Or(options.DialerRetries, 1)
	options.Username, options.Password = a.credentials()
	options.TLSConfig, options.ContextTimeoutEnabled = secure, true
	return options, nil
}

func failoverOptions(a *address, secure *tls.Config) (*redis.FailoverOptions, error) {
	sentinelUsername, sentinelPassword := a.take("sentinel_username"), a.take("sentinel_password")
	options, err := parseBy(redis.ParseFailoverURL, "redis.ParseFailoverURL", a, "26379")
	switch {
	case err != nil:
		return nil, err
	case options.MasterName == "":
		return nil, errors.New("it has no master_name: add ?master_name=NAME, " +
			"the name that the Sentinels know the master by")
	}
	// To dial the master, go-redis asks the Sentinels, with retries: that no Sentinel answers takes half
	// a minute.
	options.DialerRetries = cmp.Or(options.DialerRetries, 1)
	if a.user != nil {
		options.Username, options.Password = a.credentials()
	}
	options.SentinelUsername, options.SentinelPassword = sentinelUsername, sentinelPassword
	options.TLSConfig, options.ContextTimeoutEnabled = secure, true
	return options, nil
}

func clusterOptions(a *address, secure *tls.Config) (*redis.ClusterOptions, error) {
	if strings.Trim(a.path, "/") != "" || a.query.Has("db") {
		return nil, errors.New("a Cluster has no databases to choose from: leave the database out")
	}
	options, err := parseBy(redis.ParseClusterURL, "redis.ParseClusterURL", a, "6379")
	if err != nil {
		return nil, err
	}
	// When a master refuses connections, go-redis does not reload the nodes of a Cluster, and the
	// locks do. With the default of a minute, the data beside the locks would be unavailable for a
	// minute.
	options.ClusterStateReloadInterval = time.Second
	options.DialerRetries = cmp.Or(options.DialerRetries, 1)
	options.Username, options.Password = a.credentials()
	options.TLSConfig, options.ContextTimeoutEnabled = secure, true
	return options, nil
}

// parseBy gives the address to a parser of go-redis.
func parseBy[T any](parser func(string) (*T, error), name string, a *address, port string) (*T, error) {
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
