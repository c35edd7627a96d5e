package lockurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	schemes      = "mem:// " + redisSchemes
	redisSchemes = "redis:// rediss:// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster://"
)

// cutScheme returns the scheme, which is one of allowed, and what follows it.
func cutScheme(rawURL, allowed string) (scheme, rest string, err error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if !found || strings.ContainsAny(scheme, ":/?#@") { // the latter could show a piece of a password
		return "", "", fmt.Errorf("it has no scheme: write one of %s", allowed)
	}
	if !slices.Contains(strings.Fields(allowed), scheme+"://") {
		return "", "", fmt.Errorf("the scheme %q is not known: write one of %s", scheme, allowed)
	}
	return scheme, rest, nil
}

// address is a URL of Redis, taken apart.
type address struct {
	user  *url.Userinfo // nil if there is none
	hosts string        // as they were written
	path  string
	query url.Values
}

// parseAddress takes apart what follows the scheme. Its errors show nothing of it: a password with a special character in it
// could have ended up anywhere.
func parseAddress(rest string) (address, error) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@')
	user, hosts := authority[:at+1], authority[at+1:]
	if strings.Count(user, "@") > 1 && strings.Contains(authority, ",") {
		return address{}, errors.New("user and password stand once, before the first host, and an @ in them is written as %40")
	}
	// Package url would not take several hosts.
	u, err := url.Parse("redis://" + user + "host" + tail)
	if err != nil || strings.ContainsAny(tail, "@#") {
		return address{}, errEncoding
	}
	query, err := url.ParseQuery(u.RawQuery) // u.Query would leave out what it cannot parse
	if err != nil {
		return address{}, errEncoding
	}
	return address{u.User, hosts, u.Path, query}, nil
}

var errEncoding = errors.New("it cannot be parsed: percent-encode the special characters in user, password and parameters, " +
	"such as %40 for @, %2F for / and %23 for #")

// list returns the hosts, each with a port.
func (a address) list(port string) ([]string, error) {
	if a.hosts == "" {
		return nil, errors.New("it names no host: write host:port, or several with commas between them")
	}
	hosts := strings.Split(a.hosts, ",")
	for i, host := range hosts {
		var err error
		if hosts[i], err = withPort(host, port, a.user != nil); err != nil {
			return nil, fmt.Errorf("host %d of %d %w", i+1, len(hosts), err)
		}
	}
	return hosts, nil
}

// withPort returns host, an IPv6 address among them in brackets, with its own port or the given one.
// ⚑ If the URL has no user and password, the text in the place of a port may be a password. Then an
// error shows digits alone.
func withPort(host, port string, credentials bool) (string, error) {
	name, own := host, ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		name, own = host[:colon], host[colon+1:]
	}
	u, err := url.Parse("redis://" + name)
	if err != nil || u.Hostname() == "" || strings.Contains(name, ":") && name[0] != '[' {
		return "", errors.New("is wrong: write host:port, or [host]:port for an IPv6 address")
	}
	if own == "" {
		own = port
	}
	switch n, err := strconv.ParseUint(own, 10, 16); {
	case err == nil && n > 0:
		return net.JoinHostPort(u.Hostname(), own), nil
	case credentials || strings.Trim(own, "0123456789") == "":
		return "", fmt.Errorf("has the port %q: a port must be a number from 1 to 65535", own)
	default:
		return "", errors.New("has a port that is no number: a port must be a number from 1 to 65535, and a password ends before an @")
	}
}

// url is what the parsers of go-redis take: the hosts after the first as parameters, and no user and password, so that no
// error of theirs can show them.
func (a address) url(scheme string, hosts []string) string {
	for _, host := range hosts[1:] {
		a.query.Add("addr", host)
	}
	u := url.URL{Scheme: scheme, Host: hosts[0], Path: a.path, RawQuery: a.query.Encode()}
	return u.String()
}

// withoutSecrets refuses parameters that have a meaning for Sentinels only. That go-redis does not know them would be told
// together with what follows a & in such a password.
func (a address) withoutSecrets() error {
	for _, name := range []string{"username", "password", "sentinel_username", "sentinel_password"} {
		if a.query.Has(name) {
			return fmt.Errorf("%s is not a parameter here: write user:password@ before the host", name)
		}
	}
	return nil
}

func credentials(user *url.Userinfo) (username, password string) {
	password, _ = user.Password()
	return user.Username(), password
}

// take removes a parameter and returns its last value, which is the one that counts in go-redis.
func (a address) take(name string) string {
	values := a.query[name]
	delete(a.query, name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}
