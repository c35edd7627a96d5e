package lockurl

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// Split takes the parameters of a Locker out of a URL, for tools that open the rest by other means.
// It returns the rest, as OpenDriver takes it. A parameter that is not valid is refused with
// distlock.ErrInvalidOption.
func Split(rawURL string) (rest string, options distlock.Options, err error) {
	rest, _, err = takeParameters(rawURL, &options)
	return rest, options, err
}

// takeParameters moves the parameters of the Locker from a URL to the options, and returns the URL and
// the parameters for the backend. No error shows a value.
//
// ⚑ A query with an @ or a # may be a part of a password. Then the URL stays as it is: the backend
// refuses it, and does not show it.
func takeParameters(rawURL string, options *distlock.Options) (rest string, query url.Values, err error) {
	rest, text, _ := strings.Cut(rawURL, "?")
	query, err = url.ParseQuery(text)
	if err != nil || text == "" || strings.ContainsAny(text, "@#") {
		return rawURL, nil, nil
	}
	err = errors.Join(
		take(query, "namespace", &options.Namespace, func(text string) (string, error) { return text, nil }),
		take(query, "ttl", &options.TTL, time.ParseDuration),
		take(query, "wait", &options.Wait, time.ParseDuration))
	// ⚑ The other parameters stay as the caller wrote them: a plus sign is a plus sign for PostgreSQL, and
	// a space for Redis.
	others := slices.DeleteFunc(strings.Split(text, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name, _ = url.QueryUnescape(name)
		return slices.Contains([]string{"", "namespace", "ttl", "wait"}, name)
	})
	if len(others) > 0 {
		rest += "?" + strings.Join(others, "&")
	}
	return rest, query, err
}

// take moves a parameter to an option that has no value yet.
func take[T comparable](query url.Values, name string, option *T, parse func(string) (T, error)) error {
	if !query.Has(name) {
		return nil
	}
	value, err := parse(query.Get(name))
	var unset T
	switch {
	case err != nil:
		return invalid(name + " is not a duration with a unit: write 500ms, 30s or 1m30s")
	case value == unset:
		return invalid(name + " is empty or 0, which would mean the default: give it a value, or leave it out")
	case *option != unset, len(query[name]) > 1:
		return invalid(name + " is set twice, in the URL or by distlock.Options: leave all but one out")
	}
	*option = value
	return nil
}
