package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisurl"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Options configure [Open]. The zero value of a field, and nil Options, mean the defaults.
type Options struct {
	Lock      distlock.Options
	Retention sessionstore.Retention
	Store     sessionstore.Options
}

// Open makes a Locker and a store over one client for the Redis of rawURL, see redislock.ParseURL.
// Give both to lockedmemory.New, with the same KeyFunc. The Locker's Close also closes the client,
// so the store ends with the Locker. If Options.Lock has a Namespace and Options.Retention has none, that
// of the sessions is the lock's and ":session".
//
// It returns distlock.ErrInvalidOption for a URL that is not valid, and as [New] and redislock.New
// do. The error shows no part of a password. If Redis does not answer, the first operation fails
// with distlock.ErrUnavailable. It warns as lockurl.Open does.
func Open[M, D any](ctx context.Context, rawURL string, key lockedmemory.KeyFunc, codec sessionstore.Codec[M, D],
	opts *Options) (*distlock.Locker, *sessionstore.Store[M, D], error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	opts = cmp.Or(opts, &Options{})
	d, err := redislock.OpenDriver(rawURL)
	if err != nil {
		return nil, nil, err
	}
	var locker *distlock.Locker
	var store *sessionstore.Store[M, D]
	keep := opts.Retention.Beside(opts.Lock.Namespace)
	sessions, err := NewColocatedDriver(d, &keep)
	if err == nil {
		store, err = sessionstore.New(sessions, key, codec, &opts.Store)
	}
	if err == nil {
		locker, err = distlock.New(d, &opts.Lock)
	}
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	of := fencing.Options(locker)
	redisurl.WarnOfFailover(ctx, rawURL, of.TTL, of.Logger)
	return locker, store, nil
}
