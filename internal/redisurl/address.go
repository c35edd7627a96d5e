package redisurl

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// address is a Redis URL in its parts.
type address struct {
	server string        // "redis" or "valkey", with an s for TLS, or "unix"
	kind   string        // "sentinel", "cluster" or empty
	user   *url.Userinfo // nil if the URL has no user
	hosts  string        // as in the URL
	path   string
	query  url.Values
	secret bool // the query has a password
}

// parseAddress parses a URL. ⚑ A password with a special character can end up in each part of the
// URL. The errors therefore show only known words.
func parseAddress(rawURL string) (*address, error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	switch {
	case !found || strings.ContainsAny(scheme, ":/?#@"): // such a text may be part of a password
		return nil, fmt.Errorf("it has no scheme: write one of %s", Schemes)
	case !slices.Contains(strings.Fields(Schemes), scheme+"://"):
		return nil, fmt.Errorf("the scheme %q is not known: write one of %s", scheme, Schemes)
	}
	server, kind, _ := strings.Cut(scheme, "+")
	end := strings.IndexAny(rest+"/", "/?#")
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@')
	user, hosts := authority[:at+1], authority[at+1:]
	if strings.Count(user, "@") > 1 && strings.Contains(authority, ",") {
		return nil, errors.New("user and password belong before the first host alone: " +
			"write an @ in them as %40")
	}
	u, err := url.Parse("redis://" + user + "host" + tail) // package url rejects several hosts
	if err != nil || strings.ContainsAny(tail, "@#") {
		return nil, errEncoding
	}
	query, err := url.ParseQuery(u.RawQuery) // u.Query ignores errors
	if err != nil {
		return nil, errEncoding
	}
	secret := query.Has("password") || query.Has("sentinel_password")
	a := &address{server, kind, u.User, hosts, u.Path, query, secret}
	return a, a.check()
}

var errEncoding = errors.New("it cannot be parsed: percent-encode the special characters in user, " +
	"password and parameters, such as %40 for @, %2F for / and %23 for #")

// check refuses parameters that go-redis accepts but a lock cannot honour. It refuses passwords
// that go-redis would quote in an error.
func (a *address) check() error {
	for _, name := range slices.Sorted(maps.Keys(a.query)) {
		value := a.query.Get(name)
		if name != "addr" && len(a.query[name]) > 1 {
			return errors.New("a parameter occurs more than once: leave all but one out")
		}
		switch name {
		case "username", "password", "sentinel_username", "sentinel_password":
			// User and password of the nodes may be parameters if the URL has none before the host.
			if a.kind != "sentinel" || a.user != nil && !strings.HasPrefix(name, "sentinel_") {
				return fmt.Errorf("%s is not a parameter here: write user:password@ before the host; "+
					"if the URL has both, leave one of them out", name)
			}
		case "namespace", "ttl", "wait":
			return fmt.Errorf("%s is a parameter of lockurl.Open alone: set it in the options", name)
		case "tls_ca", "tls_cert", "tls_key", "tls_server_name", "skip_verify":
			if !a.secure() || value == "" {
				return fmt.Errorf("%s needs TLS and a value: begin the URL with rediss or valkeys, "+
					"or leave the parameter out", name)
			}
		case "pool_size", "min_idle_conns", "max_idle_conns", "max_active_conns":
			// go-redis panics with others, for a Cluster only at the first command.
			if size, err := strconv.Atoi(value); err == nil && (size < 0 || size > 65535) {
				return fmt.Errorf("%s must be 0 to 65535; 0 is the default", name)
			}
		case "read_only", "replica_only", "route_by_latency", "route_randomly":
			if on, _ := strconv.ParseBool(value); on {
				return fmt.Errorf("%s would send commands to replicas, which lag behind their master: leave it out", name)
			}
		}
	}
	return a.checkDatabase()
}

// checkDatabase does not show the path, which may be a part of a password.
func (a *address) checkDatabase() error {
	database := a.query.Get("db")
	if path := strings.Trim(a.path, "/"); a.server != "unix" && path != "" {
		if database != "" {
			return errors.New("the URL has a database in the path and in db: leave one of them out")
		}
		database = path
	}
	if _, err := strconv.ParseUint(cmp.Or(database, "0"), 10, 31); err != nil {
		return errors.New("the database must be a number from 0: write /0 after the host, or the parameter db=0")
	}
	return nil
}

// secure reports whether the scheme means TLS.
func (a *address) secure() bool { return a.server == "rediss" || a.server == "valkeys" }

// url returns the URL for the parsers of go-redis. The hosts after the first are parameters. ⚑ The
// URL has no user and password, so no error of go-redis shows them. The caller sets TLS.
func (a *address) url(port string) (string, error) {
	u := url.URL{Scheme: "unix", Path: a.path}
	if a.server != "unix" {
		hosts, err := a.hostPorts(port)
		if err != nil {
			return "", err
		}
		u.Scheme, u.Host = "redis", hosts[0]
		for _, host := range hosts[1:] {
			a.query.Add("addr", host)
		}
	}
	u.RawQuery = a.query.Encode()
	return u.String(), nil
}

// hostPorts returns the hosts, each with a port.
func (a *address) hostPorts(port string) ([]string, error) {
	if a.hosts == "" {
		return nil, errors.New("it names no host: write host:port, or several with commas between them")
	}
	hosts := strings.Split(a.hosts, ",")
	for i, host := range hosts {
		which := "the host"
		if len(hosts) > 1 {
			which = fmt.Sprintf("host %d of %d", i+1, len(hosts))
		}
		var err error
		if hosts[i], err = withPort(host, port, a.user != nil); err != nil {
			return nil, fmt.Errorf("%s %w", which, err)
		}
	}
	return hosts, nil
}

// withPort returns host with its own port or the given one. Brackets enclose an IPv6 address.
// ⚑ If the URL has no user and password, the text after the last colon may be a password. Then an
// error shows it only if it consists of digits.
func withPort(host, port string, credentials bool) (string, error) {
	name := host
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		name, port = host[:colon], cmp.Or(host[colon+1:], port)
	}
	u, err := url.Parse("redis://" + name)
	if err != nil || u.Hostname() == "" || strings.Contains(name, ":") && name[0] != '[' {
		return "", errors.New("is wrong: write host:port, or [host]:port for an IPv6 address")
	}
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case err == nil && n > 0:
		return net.JoinHostPort(u.Hostname(), port), nil
	case credentials || strings.Trim(port, "0123456789") == "":
		return "", fmt.Errorf("has the port %q: a port must be a number from 1 to 65535", port)
	default:
		return "", errors.New("has a port that is no number: a port must be a number from 1 to 65535, " +
			"and a password ends before an @")
	}
}

func (a *address) credentials() (username, password string) {
	password, _ = a.user.Password()
	return a.user.Username(), password
}

// take removes a parameter and returns its value.
func (a *address) take(name string) string {
	defer a.query.Del(name)
	return a.query.Get(name)
}
