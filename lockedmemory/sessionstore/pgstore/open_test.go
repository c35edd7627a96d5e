package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// Lock and store end with the Locker, and their options have effect.
func TestOpen_lockAndStore(t *testing.T) {
	t.Parallel()
	db := newRig(t).db
	key := lockedmemory.FixedKey("s")
	locker, store, err := pgstore.Open(t.Context(), db.URL(), key, sessionstore.JSON[string]{}, &pgstore.Options{
		Lock:      distlock.Options{TTL: time.Minute},
		Retention: sessionstore.Retention{Namespace: "opened", IdleTTL: time.Hour},
		Store:     sessionstore.Options{Window: 1},
	})
	must(t, err)
	memory := returned(lockedmemory.New(store, locker, key, nil))(t)
	must(t, errors.Join(memory.Save(t.Context(), "first", ""), memory.Save(t.Context(), "q", "a")))
	if got, err := memory.Load(t.Context(), ""); err != nil || !slices.Equal(got, []string{"q", "a"}) {
		t.Errorf("Load with a window of 1: %q, %v", got, err)
	}
	row := returned(db.Do("SELECT namespace, kept_until < now() + interval '1 hour' FROM belugalock.session"))(t)
	if row != "opened|t" {
		t.Errorf("the session: %s", row)
	}
	must(t, locker.Close(t.Context()))
	if _, err := store.Load(t.Context(), ""); !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("Load after the Locker's Close: %v", err)
	}
}

// The leak check of this package sees a pool that stays open.
func TestOpen_badInput_nothingStaysOpen(t *testing.T) {
	t.Parallel()
	url, key := servers.SharedPostgres(t).URL("postgres"), lockedmemory.FixedKey("s")
	codec := sessionstore.JSON[string]{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails := func(ctx context.Context, url string, key lockedmemory.KeyFunc, opts *pgstore.Options, want error) {
		t.Helper()
		if _, _, err := pgstore.Open(ctx, url, key, codec, opts); !errors.Is(err, want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v; want %v, without the password", err, want)
		}
	}
	fails(ended, url, key, nil, context.Canceled)
	fails(t.Context(), "postgres://user:secret@h:port", key, nil, distlock.ErrInvalidOption)
	fails(t.Context(), url, nil, nil, distlock.ErrInvalidOption)
	for _, opts := range []*pgstore.Options{
		{Schema: "own"}, {Lock: distlock.Options{TTL: -1}}, {Retention: sessionstore.Retention{IdleTTL: 1}}, {Store: sessionstore.Options{Window: -1}},
	} {
		fails(t.Context(), url, key, opts, distlock.ErrInvalidOption)
	}
	locks := memlock.NewDriver()
	defer locks.Close()
	_, err := pgstore.NewColocatedDriver(locks, nil)
	_, err2 := pgstore.NewDriver(nil, nil)
	_, err3 := pgstore.New[string, string](nil, key, codec, nil)
	if !errors.Is(err, distlock.ErrInvalidOption) || !errors.Is(err2, distlock.ErrInvalidOption) ||
		!errors.Is(err3, distlock.ErrInvalidOption) {
		t.Errorf("%v; %v; %v", err, err2, err3)
	}
	locker := returned(memlock.New(nil))(t)
	defer locker.Close(t.Context())
	store := returned(pgstore.New(connect(t, url), key, codec, nil))(t)
	if _, err := lockedmemory.New(store, locker, key, nil); err == nil {
		t.Error("the locks of one process are accepted")
	}
}
