package main

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"slices"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A page of exchanges has about pageBytes, and at most maxEntries.
const (
	pageBytes  = 4 << 20
	maxEntries = 256
)

// sessions is an open connection to the sessions of one namespace.
type sessions struct {
	storedriver.Driver
	close func()
}

// openStore opens the sessions of --store, or beside the locks. It sends nothing.
func (t *tool) openStore() (*sessions, error) {
	rawURL := cmp.Or(t.storeURL(), t.lockURL())
	if rawURL == "" {
		return nil, invalid("no sessions are given: use --store, LOCKCTL_STORE, --url or LOCKCTL_URL")
	}
	address, opts, err := lockurl.Split(rawURL)
	if err != nil {
		return nil, err
	}
	keep := storedriver.Retention{Namespace: opts.Namespace}
	if t.storeURL() == "" {
		keep = storedriver.Retention{}.Beside(opts.Namespace)
	}
	locks, err := lockurl.OpenDriver(address)
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

func (t *tool) storeURL() string { return cmp.Or(t.store, os.Getenv("LOCKCTL_STORE")) }

// names reads up to limit names of sessions, in order. More says that it has not read all.
func (s *sessions) names(ctx context.Context, limit int) (names []string, more bool, err error) {
	read := func(after string, _ int) (page []string, next string, err error) {
		_, err = ask(ctx, func(ctx context.Context) (any, error) {
			page, next, err = s.Sessions(ctx, after)
			return nil, err
		})
		slices.Sort(page)
		return page, next, err
	}
	names, more, err = paged(limit, func(name string) string { return name }, read)
	slices.Sort(names)
	return names, more, err
}

// exchanges yields up to limit entries of a session, in order, or from the last one back.
func (s *sessions) exchanges(ctx context.Context, name string, from lockedmemory.Place, backward bool, limit int,
) iter.Seq2[storedriver.Entry, error] {
	return func(yield func(storedriver.Entry, error) bool) {
		read := storedriver.Read{Access: storedriver.Access{Session: name}, Backward: backward, From: from}
		revision, largest, room := int64(0), 1, 4
		for limit > 0 {
			read.Limit = min(room, limit)
			page, err := ask(ctx, func(ctx context.Context) (storedriver.Page, error) { return s.Read(ctx, read) })
			if err == nil && read.Next && page.Revision != revision {
				err = errChanged
			}
			if err != nil {
				yield(storedriver.Entry{}, err)
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

func size(e storedriver.Entry) int {
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
