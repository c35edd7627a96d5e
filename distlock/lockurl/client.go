package lockurl

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewRedisClient makes the client that Open would make for rawURL, for a program that keeps its data where its locks are. It
// is a *redis.Client for redis:// and redis+sentinel://, and a *redis.ClusterClient for redis+cluster://. The caller closes
// it. It waits for no connection: a server that does not answer shows at the first command.
//
// A URL that is not valid, and mem://, which has no client, are refused with distlock.ErrInvalidOption; the error never
// shows a piece of a password.
func NewRedisClient(rawURL string) (redis.UniversalClient, error) {
	options, err := parse(rawURL)
	if err != nil {
		return nil, invalid(err)
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

// parse returns *redis.Options, *redis.FailoverOptions or *redis.ClusterOptions.
func parse(rawURL string) (any, error) {
	if strings.HasPrefix(rawURL, "mem://") {
		return nil, fmt.Errorf("mem:// has no client, its locks are in this process: write one of %s", redisSchemes)
	}
	scheme, rest, err := cutScheme(rawURL, redisSchemes)
	if err != nil {
		return nil, err
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
	hosts, err := a.list("6379")
	if err != nil {
		return nil, err
	}
	if err := a.withoutSecrets(); err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(a.url(scheme, hosts))
	if err != nil {
		return nil, fmt.Errorf("%w (the parameters are those of redis.ParseURL of go-redis)", err)
	}
	options.Username, options.Password = credentials(a.user)
	options.ContextTimeoutEnabled = true // see redislock.New
	return options, checkPool(options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns)
}

func failoverOptions(scheme string, a address) (*redis.FailoverOptions, error) {
	hosts, err := a.list("26379")
	if err != nil {
		return nil, err
	}
	secret := a.query.Has("password") || a.query.Has("sentinel_password")
	if a.user != nil && (a.query.Has("password") || a.query.Has("username")) {
		return nil, errors.New("user and password of Redis stand both before the hosts and in the parameters username and " +
			"password: leave one of them out; those of the Sentinels are sentinel_username and sentinel_password")
	}
	username, password := credentials(a.user)
	if a.user == nil {
		username, password = a.take("username"), a.take("password")
	}
	sentinelUsername, sentinelPassword := a.take("sentinel_username"), a.take("sentinel_password")
	options, err := redis.ParseFailoverURL(a.url(scheme, hosts))
	switch {
	case err != nil && secret: // what go-redis does not know might be the rest of a password with a & in it
		return nil, errors.New("a parameter is not known or has a wrong value, and may be a part of a password: write a & in " +
			"a password as %26; the parameters are those of redis.ParseFailoverURL of go-redis, sentinel_username and sentinel_password")
	case err != nil:
		return nil, fmt.Errorf("%w (the parameters are those of redis.ParseFailoverURL of go-redis, sentinel_username and "+
			"sentinel_password)", err)
	case options.MasterName == "":
		return nil, errors.New("it has no master_name: add ?master_name=NAME, the name that the Sentinels know the master by")
	case options.ReplicaOnly, options.RouteByLatency, options.RouteRandomly:
		return nil, errReplicas
	}
	if options.DialerRetries == 0 {
		// To dial the master is to ask the Sentinels, with retries of its own. With the defaults of go-redis it would take half a
		// minute to say that none of them answers.
		options.DialerRetries = 1
	}
	options.Username, options.Password = username, password
	options.SentinelUsername, options.SentinelPassword = sentinelUsername, sentinelPassword
	options.ContextTimeoutEnabled = true
	return options, checkPool(options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns)
}

func clusterOptions(scheme string, a address) (*redis.ClusterOptions, error) {
	hosts, err := a.list("6379")
	if err != nil {
		return nil, err
	}
	if err := a.withoutSecrets(); err != nil {
		return nil, err
	}
	if strings.Trim(a.path, "/") != "" || a.query.Has("db") {
		return nil, errors.New("a Cluster has no databases to choose from: leave the database out")
	}
	options, err := redis.ParseClusterURL(a.url(scheme, hosts))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w (the parameters are those of redis.ParseClusterURL of go-redis)", err)
	case options.ReadOnly, options.RouteByLatency, options.RouteRandomly:
		return nil, errReplicas
	}
	options.ClusterStateReloadInterval = clusterReload
	options.Username, options.Password = credentials(a.user)
	options.ContextTimeoutEnabled = true
	return options, checkPool(options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns)
}

// clusterReload is how old the client's picture of the Cluster may be. A master that refuses connections does not make go-redis
// ask for a new one. The locks do, but with the default of a minute, the data beside them could not be reached for that long.
const clusterReload = time.Second

var errReplicas = errors.New("read_only, replica_only, route_by_latency and route_randomly send commands to replicas, which " +
	"lag behind their master: leave them out")

// checkPool refuses what go-redis would answer with a panic, for a Cluster only at the first command.
func checkPool(sizes ...int) error {
	for _, size := range sizes {
		if size < 0 || size > 65535 {
			return errors.New("pool_size, min_idle_conns, max_idle_conns and max_active_conns must be 0 to 65535; 0 is the default")
		}
	}
	return nil
}
