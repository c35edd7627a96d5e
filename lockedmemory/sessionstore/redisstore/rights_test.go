package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Without any one right of a store, each call works or fails at once with advice. With the right
// again, each acknowledged exchange is stored once, and so is each exchange with a turn ID that was
// repeated.
func TestStore_C_withoutARight(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	server := servers.StartRedis(t)
	newClient := func(user string) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: servers.UserPassword})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	for _, apart := range []bool{false, true} {
		for i, missing := range ofStore.Needed {
			t.Run(fmt.Sprintf("%s,apart=%t", missing, apart), func(t *testing.T) {
				without := ofStore.Without(missing)
				user, locker := fmt.Sprintf("store-%d-%t", i, apart), "locker"
				if apart {
					servers.SetUser(t, server, locker, []string{"distlock"}, slices.Concat(ofLock.Needed, ofLock.Notified)...)
				} else { // the locker has its rights, except one that both need
					locker = user
					without = servers.Rights{Needed: append(without.Needed, ofLock.Without(missing).Needed...)}
					if strings.HasPrefix(missing, "~") { // only the store needs it
						without.Needed = slices.DeleteFunc(without.Needed, func(right string) bool { return right == missing })
						without.Needed = append(without.Needed, "~distlock:*")
					}
				}
				grant := func(rights []string) {
					if apart {
						servers.SetUser(t, server, user, []string{"session"}, rights...)
					} else {
						servers.SetUser(t, server, user, []string{"session", "distlock"}, rights...)
					}
				}
				grant(slices.Concat(ofStore.Needed, ofLock.Needed))
				client := newClient(user)
				lockClient := client
				if apart {
					lockClient = newClient(locker)
				}
				r := &rightless{T: t, missing: missing, client: client, admin: admin}
				r.open(client, lockClient)
				r.round("before")
				if r.failed > 0 {
					t.Fatal("a call has failed with all rights")
				}
				grant(without.Needed)
				if _, err := server.Do("SCRIPT", "FLUSH"); err != nil { // so that a call needs EVAL
					t.Fatal(err)
				}
				r.round("without")
				r.clear()
				if _, err := server.Do("DEL", r.log()); err != nil { // for calls on a session without a log
					t.Fatal(err)
				}
				r.saved, r.unknown = nil, nil
				r.round("again")
				if r.failed == 0 {
					t.Errorf("no call has failed, and the server has refused %s", servers.RefusedToUsers(t, server))
				}
				grant(slices.Concat(ofStore.Needed, ofLock.Needed))
				r.repeat()
			})
		}
	}
}

// rightless makes calls that may fail for want of a right.
type rightless struct {
	*testing.T
	missing, key string
	memory       *lockedmemory.LockedMemory[string, string]
	store        *sessionstore.Store[string, string]
	locker       *distlock.Locker
	client       *redis.Client
	admin        *redis.Client

	failed         int
	saved, unknown []string
	named          []string // turn IDs of Saves that have failed
}

func (r *rightless) open(client, lockClient *redis.Client) {
	r.Helper()
	r.key = r.Name()
	quiet := slog.New(slog.DiscardHandler)
	var err error
	r.locker, err = redislock.New(lockClient, &distlock.Options{TTL: 5 * time.Second, Wait: 2 * time.Second, Logger: quiet})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.locker.Close(context.Background()) })
	key := lockedmemory.FixedKey(r.key)
	if r.store, err = redisstore.New(client, key, sessionstore.JSON[string]{}, nil, nil); err != nil {
		r.Fatal(err)
	}
	if r.memory, err = lockedmemory.New(r.store, r.locker, key, nil); err != nil {
		r.Fatal(err)
	}
}

// did checks the error of a call.
func (r *rightless) did(what string, start time.Time, err error) {
	r.Helper()
	if took := time.Since(start); took > 4*time.Second {
		r.Errorf("%s took %s", what, took)
	}
	if err == nil {
		return
	}
	r.failed++
	text := strings.ToLower(err.Error())
	writes := strings.Contains(what, "Save") || what == "Clear" || what == "Replace"
	// Redis does not name a refused command in a script.
	names := strings.Contains(text, strings.TrimPrefix(r.missing, "+")) || strings.Contains(text, "user executing the script") ||
		strings.HasPrefix(r.missing, "~") && strings.Contains(text, "key")
	refused := errors.Is(err, distlock.ErrRefused) && errors.Is(err, driver.ErrRights)
	if unknown := errors.Is(err, distlock.ErrOutcomeUnknown); refused == unknown || unknown && !writes || !names || !strings.Contains(text, "acl user lacks a right") {
		r.Errorf("%s: %v", what, err)
	}
}

// expire ends a lease that could not be released without a right, as its TTL would.
func (r *rightless) expire() {
	if err := r.admin.PExpire(r.Context(), "distlock:{"+r.key+"}:lock", 24*time.Hour).Err(); err != nil {
		r.Fatal(err)
	}
}

// save stores an exchange; with once, under its text as the ID.
func (r *rightless) save(ctx context.Context, what, text string, once bool) {
	r.Helper()
	start := time.Now()
	var err error
	if once {
		err = r.memory.SaveOnce(ctx, text, text, "re: "+text)
	} else {
		err = r.memory.Save(ctx, text, "re: "+text)
	}
	r.did(what, start, err)
	if _, inTurn := lockedmemory.Lease(ctx); !inTurn {
		r.expire()
	}
	switch {
	case err == nil:
		r.saved = append(r.saved, text)
	case errors.Is(err, distlock.ErrOutcomeUnknown):
		r.unknown = append(r.unknown, text)
		fallthrough
	default:
		if once {
			r.named = append(r.named, text)
		}
	}
}

// round makes every call.
func (r *rightless) round(when string) {
	r.Helper()
	ctx := r.Context()
	r.save(ctx, "Save", when+"-1", false)
	r.save(ctx, "SaveOnce", when+"-2", true)
	start := time.Now()
	err := r.memory.Turn(ctx, func(ctx context.Context) error {
		start := time.Now()
		_, err := r.memory.Load(ctx, "")
		r.did("Load in a turn", start, err)
		r.save(ctx, "Save in a turn", when+"-3", false)
		r.save(ctx, "SaveOnce in a turn", when+"-4", true)
		r.save(ctx, "SaveOnce in a turn, again", when+"-4", true)
		if n := len(r.saved); n > 1 && r.saved[n-1] == r.saved[n-2] {
			r.saved = r.saved[:n-1]
		}
		return nil
	})
	r.expire()
	if err != nil && !errors.Is(err, distlock.ErrLost) {
		r.did("Turn", start, err)
	}
	start = time.Now()
	_, err = r.memory.Search(ctx, "re", 3)
	r.did("Search", start, err)
	start = time.Now()
	for _, err := range r.store.Forward(ctx, lockedmemory.Place{}) {
		r.did("Forward", start, err)
	}
	start = time.Now()
	err = r.memory.Turn(ctx, func(ctx context.Context) error {
		for range 2 { // the first access may fail after its write
			for e, err := range r.store.Forward(ctx, lockedmemory.Place{}) {
				if err == nil { // by itself
					start = time.Now()
					err = r.store.Replace(ctx, e.Place, e.Place, e)
					r.did("Replace", start, err)
					if r.admin.PTTL(ctx, strings.TrimSuffix(r.log(), "log")+"stage").Val() == -1 {
						r.Error("the copy of a Replace has no TTL")
					}
					if r.admin.PTTL(ctx, r.log()).Val() >= 0 {
						r.Error("the history has a TTL")
					}
				}
				break
			}
		}
		return nil
	})
	r.expire()
	if err != nil && !errors.Is(err, distlock.ErrLost) {
		r.did("Turn", start, err)
	}
	r.rare(when)
}

// rare makes the calls of a driver that trim, refuse a place, and remove the ID of a refused
// one. Without a right, IDs still expire, those of refused Saves are not known, and a Clear
// that has written refuses older leases.
func (r *rightless) rare(when string) {
	r.Helper()
	lease, err := r.locker.Acquire(r.Context(), r.key+when)
	if err != nil {
		return
	}
	defer func() {
		_ = lease.Release(r.Context())
		r.admin.PExpire(r.Context(), "distlock:{"+lease.Key()+"}:lock", 24*time.Hour)
	}()
	d, err := redisstore.NewDriver(r.client, &storedriver.Retention{Namespace: "session", MaxExchanges: 1,
		RememberIDs: time.Hour})
	if err != nil {
		r.Fatal(err)
	}
	write := func(token int64) storedriver.Append {
		a := storedriver.Access{Session: lease.Key(), Lease: lease, Fence: lease.Fence() + token, FirstAccess: true}
		op := fmt.Sprintf("%032x", a.Fence)
		return storedriver.Append{Write: storedriver.Write{Access: a, N: 1, Op: op},
			Content: storedriver.Content{Messages: [][]byte{{'x'}}, ID: pruning(op), Digest: [16]byte([]byte(op))}}
	}
	did := func(err error) {
		if err == nil {
			return
		}
		if r.failed++; !errors.Is(err, driver.ErrRights) {
			r.Error(err)
		}
	}
	for _, token := range []int64{2, 1, 3} {
		_, err := d.Append(r.Context(), write(token))
		did(err)
	}
	if life := r.admin.PTTL(r.Context(), "session:{"+lease.Key()+"}:ids").Val(); life == -1 {
		r.Error("the turn IDs have no TTL")
	}
	_, err = d.Clear(r.Context(), storedriver.Clear{Write: write(5).Write})
	did(err)
	if err != nil && !errors.Is(err, driver.ErrReplayed) { // nothing is written
		return
	}
	all, err := redisstore.NewDriver(r.admin, &storedriver.Retention{Namespace: "session", RememberIDs: time.Hour})
	if err != nil {
		r.Fatal(err)
	}
	again := write(6)
	again.Content = write(1).Content // of the refused write
	for want, a := range map[storedriver.Outcome]storedriver.Append{storedriver.Stale: write(4), storedriver.Done: again} {
		if v, err := all.Append(r.Context(), a); err != nil || v.Outcome != want {
			r.Errorf("a Save under %d after a Clear under %d: %v, %v; want %v", a.Fence, lease.Fence()+5, v, err, want)
		}
	}
}

// pruning returns an ID whose first Save removes expired IDs.
func pruning(id string) string {
	for fieldOf(id)[0] >= 32 {
		id += "'"
	}
	return id
}

// clear clears.
func (r *rightless) clear() {
	r.Helper()
	start := time.Now()
	err := r.memory.Clear(r.Context())
	r.did("Clear", start, err)
	r.expire()
	switch {
	case errors.Is(err, distlock.ErrOutcomeUnknown):
		r.unknown, r.saved = append(r.unknown, r.saved...), nil
	case err == nil:
		r.unknown, r.saved = nil, nil
	}
}

func (r *rightless) log() string { return "session:{" + r.key + "}:log" }

// repeat repeats the failed Saves with turn IDs, and checks the stored exchanges.
func (r *rightless) repeat() {
	r.Helper()
	for _, text := range r.named {
		if err := r.memory.SaveOnce(r.Context(), text, text, "re: "+text); err != nil {
			r.Errorf("the repetition of %s: %v", text, err)
		}
	}
	counts := make(map[string]int)
	messages, err := r.memory.Load(r.Context(), "")
	if err != nil || len(messages)%2 != 0 {
		r.Errorf("%d messages, %v", len(messages), err)
	}
	for pair := range slices.Chunk(messages, 2) {
		if counts[pair[0]]++; pair[1] != "re: "+pair[0] {
			r.Errorf("torn: %q", pair)
		}
	}
	for text, n := range counts {
		if n > 1 {
			r.Errorf("%s is stored %d times: %q", text, n, messages)
		}
		if !slices.Contains(r.saved, text) && !slices.Contains(r.unknown, text) && !slices.Contains(r.named, text) {
			r.Errorf("%s is stored without a Save", text)
		}
	}
	for _, text := range r.saved {
		if counts[text] != 1 {
			r.Errorf("%s was acknowledged, and is stored %d times", text, counts[text])
		}
	}
	if err := r.memory.Clear(r.Context()); err != nil {
		r.Error(err)
	}
}
