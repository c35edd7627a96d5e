package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisurl"
)

// Schemes are the URL schemes that ParseURL accepts, with spaces between them.
const Schemes = "redlock+redis:// redlock+rediss:// redlock+valkey:// redlock+valkeys://"

// ParseURL makes the Redis clients of a URL, one for each node, and returns its RestartDelay, see
// [Options]. The caller closes the clients. ParseURL sends nothing.
//
//	redlock+redis://user:password@h1:6379,user:password@h2:6379,user:password@h3:6379/0
//
// Each node has a user and a password of its own. Write nodes without them last. The database and the
// parameters are for all nodes. restart_delay is a duration, as 30s; negative: off. The other
// parameters, TLS with rediss, and valkey are those of redislock.ParseURL. The parameters namespace, ttl
// and wait are for lockurl.Open alone.
//
// A URL that is not valid is refused with distlock.ErrInvalidOption. The error shows no part of a
// password. The number of nodes is checked by [NewDriver].
func ParseURL(rawURL string) (clients []redis.UniversalClient, restartDelay time.Duration, err error) {
	nodes, restartDelay, err := splitURL(rawURL)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: lock URL: %w", distlock.ErrInvalidOption, err)
	}
	for i, node := range nodes {
		client, err := redisurl.NewClient(node)
		if err != nil {
			err = fmt.Errorf("%w: lock URL: node %d of %d: %w", distlock.ErrInvalidOption, i+1, len(nodes), err)
			return nil, 0, errors.Join(err, closeAll(clients))
		}
		clients = append(clients, client)
	}
	return clients, restartDelay, nil
}

// OpenDriver makes a driver over the clients of rawURL, see [ParseURL]. The driver's Close also closes
// these clients.
func OpenDriver(rawURL string) (driver.Driver, error) {
	clients, restartDelay, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	d, err := newDriver(clients, cmp.Or(restartDelay, defaultDelay), true)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock URL: %w", err), closeAll(clients))
	}
	return d, nil
}

func closeAll(clients []redis.UniversalClient) (err error) {
	for _, client := range clients {
		err = errors.Join(err, client.Close())
	}
	return err
}

// splitURL returns a URL for each node. ⚑ A password with a special character can end up in each part
// of the URL. The errors therefore show only known words.
func splitURL(rawURL string) (nodes []string, restartDelay time.Duration, err error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if !found || !slices.Contains(strings.Fields(Schemes), scheme+"://") {
		return nil, 0, fmt.Errorf("the scheme is not known: write one of %s", Schemes)
	}
	end := strings.IndexAny(rest+"/", "/?#")
	if strings.ContainsAny(rest[end:], "@#") {
		return nil, 0, errors.New("it cannot be parsed: percent-encode the special characters in users, passwords and " +
			"parameters, such as %40 for @, %2F for /, %23 for # and %2C for a comma")
	}
	tail, restartDelay, err := takeDelay(rest[end:])
	if err != nil {
		return nil, 0, err
	}
	server, without := strings.TrimPrefix(scheme, "redlock+"), 0
	hosts := strings.Split(rest[:end], ",")
	for i, host := range hosts {
		at := strings.LastIndexByte(host, '@')
		switch name := host[at+1:]; {
		case name == "" || name[0] == ':':
			return nil, 0, fmt.Errorf("node %d of %d has no host: write host:port for each node", i+1, len(hosts))
		case at < 0:
			without = i + 1
		case without > 0:
			// ⚑ A comma in a password ends a node, so a part of the password would be a host, and errors
			// would show it.
			return nil, 0, fmt.Errorf("node %d of %d has no user and password, and a later node has: write a comma in a "+
				"password as %%2C, and put nodes without a password last", without, len(hosts))
		}
		nodes = append(nodes, server+"://"+host+tail)
	}
	return nodes, restartDelay, nil
}

// takeDelay takes restart_delay out of the path and the parameters of a URL. redislock refuses a
// query that cannot be parsed.
func takeDelay(tail string) (rest string, delay time.Duration, err error) {
	rest, text, _ := strings.Cut(tail, "?")
	query, err := url.ParseQuery(text)
	if err != nil || !query.Has("restart_delay") {
		return tail, 0, nil
	}
	delay, err = time.ParseDuration(query.Get("restart_delay"))
	switch {
	case err != nil:
		return "", 0, errors.New("restart_delay is not a duration with a unit: write 30s or 1m30s; negative, as -1s: off")
	case delay == 0:
		return "", 0, errors.New("restart_delay is 0, which would mean the default: give it a value, or leave it out")
	case len(query["restart_delay"]) > 1:
		return "", 0, errors.New("restart_delay occurs more than once: leave all but one out")
	}
	if query.Del("restart_delay"); len(query) > 0 {
		rest += "?" + query.Encode()
	}
	return rest, delay, nil
}
