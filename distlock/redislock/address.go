package redislock

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// address is a Redis URL in its parts.
type address struct {
	user  *url.Userinfo // nil if the URL has no user
	hosts string        // as in the URL
	path  string
	query url.Values
}

// parseAddress takes the URL without its scheme. Its errors show no part of the URL: a password
// with a special character can end up in each of them.
func parseAddress(rest string) (address, error) {
	end := strings.IndexAny(rest+"/", "/?#")
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@')
	user, hosts := authority[:at+1], authority[at+1:]
	if strings.Count(user, "@") > 1 && strings.Contains(authority, ",") {
		return address{}, errors.New("user and password stand once, before the first host, " +
			"and an @ in them is written as %40")
	}
	u, err := url.Parse("redis://" + user + "host" + tail) // package url rejects several hosts
	if err != nil || strings.ContainsAny(tail, "@#") {
		return address{}, errEncoding
	}
	query, err := url.ParseQuery(u.RawQuery) // u.Query ignores errors
	if err != nil {
		return address{}, errEncoding
	}
	return address{u.User, hosts, u.Path, query}, nil
}

var errEncoding = errors.New("it cannot be parsed: percent-encode the special characters in user, " +
	"password and parameters, such as %40 for @, %2F for / and %23 for #")

// url returns the URL for the parsers of go-redis. The hosts after the first are parameters. User
// and password are left out, so that no error of go-redis shows them.
func (a address) url(scheme, port string) (string, error) {
	if a.hosts == "" {
		return "", errors.New("it names no host: write host:port, or several with commas between them")
	}
	hosts := strings.Split(a.hosts, ",")
	for i, host := range hosts {
		var err error
		if hosts[i], err = withPort(host, port, a.user != nil); err != nil {
			return "", fmt.Errorf("host %d of %d %w", i+1, len(hosts), err)
		}
	}
	for _, name := range []string{"username", "password", "sentinel_username", "sentinel_password"} {
		if a.query.Has(name) { // go-redis would quote the text after a bare & in such a password
			return "", fmt.Errorf("%s is not a parameter here: write user:password@ before the host; "+
				"if the URL has both, leave one of them out", name)
		}
	}
	for _, host := range hosts[1:] {
		a.query.Add("addr", host)
	}
	u := url.URL{Scheme: scheme, Host: hosts[0], Path: a.path, RawQuery: a.query.Encode()}
	return u.String(), nil
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

func (a address) credentials() (username, password string) {
	password, _ = a.user.Password()
	return a.user.Username(), password
}

// take removes a parameter and returns its value.
func (a address) take(name string) string {
	defer a.query.Del(name)
	return a.query.Get(name)
}
