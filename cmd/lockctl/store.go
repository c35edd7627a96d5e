package main

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// A page of exchanges has about pageBytes, and at most maxEntries.
const (
	pageBytes  = 4 << 20
	maxEntries = 256
)

// sessions is an open connection to the sessions of one namespace.
type sessions struct {
	driver.Driver
	close func()
}

// openStore opens the sessions of --store, or beside the locks. It sends nothing.
func (t *tool) openStore() (*sessions, error) {
	rawURL := cmp.Or(t.store, os.Getenv("LOCKCTL_STORE"))
	var keep driver.Retention
	if rawURL != "" {
		rawURL, keep.Namespace = split(rawURL)
	} else {
		var locks string
		rawURL, locks = split(cmp.Or(t.url, os.Getenv("LOCKCTL_URL")))
		keep = keep.Beside(locks)
	}
	if rawURL == "" {
		return nil, invalid("no sessions are given: use --store, LOCKCTL_STORE, --url or LOCKCTL_URL")
	}
	locks, err := lockurl.OpenDriver(rawURL)
	if err != nil {
		return nil, err
	}
	s := &sessions{close: func() { _ = locks.Close() }}
	switch backend := locks.Capabilities().Backend; backend {
	case "redis":
		s.Driver, err = redisstore.NewColocatedDriver(locks, &keep)
	case "postgres":
		s.Driver, err = pgstore.NewColocatedDriver(locks, &keep)
	default:
		err = invalid("the backend %q keeps no sessions: give their Redis or PostgreSQL with --store", backend)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// split takes the parameters of a Locker out of a URL, and returns the namespace.
func split(rawURL string) (rest, namespace string) {
	base, query, found := strings.Cut(rawURL, "?")
	values, err := url.ParseQuery(query)
	if !found || err != nil || strings.ContainsAny(query, "@#") { // perhaps a part of a password
		return rawURL, ""
	}
	others := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{"", "namespace", "ttl", "wait"}, name)
	})
	if len(others) > 0 {
		base += "?" + strings.Join(others, "&")
	}
	return base, values.Get("namespace")
}

// names reads up to limit names of sessions. More says that it has not read all.
func (s *sessions) names(ctx context.Context, limit int) (names []string, more bool, err error) {
	type page struct {
		names []string
		next  string
	}
	after := ""
	for range max(maxPages, limit/pageSize) {
		p, err := ask(ctx, func(ctx context.Context) (p page, err error) {
			p.names, p.next, err = s.Sessions(ctx, after)
			return p, err
		})
		if err != nil {
			return nil, false, err
		}
		names = append(names, p.names...)
		if after = p.next; after == "" || len(names) >= limit {
			break
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, after != "", nil
}

// exchanges yields up to limit entries of a session, in order, or from the last one back.
func (s *sessions) exchanges(ctx context.Context, name string, from lockedmemory.Place, backward bool, limit int,
) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		read := driver.Read{Session: name, Backward: backward, From: from}
		revision, largest, room := int64(0), 1, 4
		for limit > 0 {
			read.Limit = min(room, limit)
			page, err := ask(ctx, func(ctx context.Context) (driver.Page, error) { return s.Read(ctx, read) })
			if err == nil && read.Next && page.Revision != revision {
				err = errChanged
			}
			if err != nil {
				yield(driver.Entry{}, err)
				return
			}
			for _, e := range page.Entries {
				largest = max(largest, size(e))
				if !yield(e, nil) {
					return
				}
			}
			limit -= len(page.Entries)
			if read.From = page.Last; page.Last == (lockedmemory.Place{}) {
				return
			}
			read.Next, revision, room = true, page.Revision, max(1, min(4*room, maxEntries, pageBytes/largest))
		}
	}
}

// errChanged ends a command with exitFinding.
var errChanged = errors.New("the session was replaced or cleared while it was read: run the command again")

func size(e driver.Entry) int {
	bytes := e.Size
	for _, message := range e.Messages {
		bytes += len(message)
	}
	return bytes
}

// raw is the codec of a store that reads no message.
type raw struct{}

func (raw) Encode(message []byte) ([]byte, error) { return message, nil }
func (raw) Decode(text []byte) ([]byte, error)    { return text, nil }
func (raw) Text(message []byte) string            { return "" }
func (raw) Document(message []byte) []byte        { return message }
