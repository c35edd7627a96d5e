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
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Without any one right of a store, each call works or fails at once with advice. With the right
// again, each acknowledged exchange is stored once, and so is each exchange with a turn ID that was
// repeated.
func TestStore_C_withoutARight(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	all := slices.Concat(ofStore.Needed, ofLock.Needed)
	server := servers.StartRedis(t)
	admin := newRig(t, server).client
	for _, apart := range []bool{false, true} {
		for i, missing := range ofStore.Needed {
			t.Run(fmt.Sprintf("%s,apart=%t", missing, apart), func(t *testing.T) {
				without := ofStore.Without(missing).Needed
				user, locker, keys := fmt.Sprintf("store-%d-%t", i, apart), "locker", []string{"session"}
				if apart {
					servers.SetUser(t, server, locker, []string{"distlock"}, slices.Concat(ofLock.Needed, ofLock.Notified)...)
				} else { // the locker has its rights, except one that both need
					locker, keys = user, append(keys, "distlock")
					without = append(without, ofLock.Without(missing).Needed...)
					if strings.HasPrefix(missing, "~") { // only the store needs it
						without = slices.DeleteFunc(without, func(right string) bool { return right == missing })
						without = append(without, "~distlock:*")
					}
				}
				grant := func(rights []string) { servers.SetUser(t, server, user, keys, rights...) }
				grant(all)
				lock := &distlock.Options{TTL: 5 * time.Second, Wait: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
				as := func(user string) *redis.Options {
					return &redis.Options{Username: user, Password: servers.UserPassword}
				}
				r := &rightless{T: t, rig: newRig(t, server, as(user), lock), missing: missing, admin: admin}
				if apart {
					r.locks(t, newRig(t, server, as(locker)).client, lock)
					r.rig = r.rig.named(t, t.Name())
				}
				r.round("before")
				if r.failed > 0 {
					t.Fatal("a call has failed with all rights")
				}
				grant(without)
				do(t, server, "SCRIPT", "FLUSH") // so that a call needs EVAL
				r.round("without")
				r.clear()
				do(t, server, "DEL", r.log()) // for calls on a session without a log
				r.saved, r.unknown = nil, nil
				r.round("again")
				if r.failed == 0 {
					t.Errorf("no call has failed, and the server has refused %s", servers.RefusedToUsers(t, server))
				}
				grant(all)
				r.repeat()
			})
		}
	}
}

// rightless makes calls that may fail for want of a right.
type rightless struct {
	*testing.T
	*rig
	missing string
	admin   redis.UniversalClient

	failed         int
	saved, unknown []string
	named          []string // turn IDs of Saves that have failed
}

// try makes a call, and checks its error. A write may have an unknown outcome.
func (r *rightless) try(what string, writes bool, call func() error) error {
	r.Helper()
	start := time.Now()
	err := call()
	if took := time.Since(start); took > 4*time.Second {
		r.Errorf("%s took %s", what, took)
	}
	if err == nil {
		return nil
	}
	r.failed++
	text := strings.ToLower(err.Error())
	// Redis does not name a refused command in a script.
	names := strings.Contains(text, strings.TrimPrefix(r.missing, "+")) || strings.Contains(text, "user executing the script") ||
		strings.HasPrefix(r.missing, "~") && strings.Contains(text, "key")
	refused := errors.Is(err, distlock.ErrRefused) && errors.Is(err, driver.ErrRights)
	if unknown := errors.Is(err, distlock.ErrOutcomeUnknown); refused == unknown || unknown && !writes || !names || !strings.Contains(text, "acl user lacks a right") {
		r.Errorf("%s: %v", what, err)
	}
	return err
}

// expire ends a lease that could not be released without a right, as its TTL would.
func (r *rightless) expire(key string) {
	must(r, r.admin.PExpire(r.Context(), "distlock:{"+key+"}:lock", driver.FenceKeep).Err())
}

// inTurn runs fn, if a turn begins.
func (r *rightless) inTurn(fn func(ctx context.Context)) {
	r.Helper()
	_ = r.try("Turn", false, func() error {
		err := r.memory.Turn(r.Context(), func(ctx context.Context) error { fn(ctx); return nil })
		if errors.Is(err, distlock.ErrLost) {
			return nil
		}
		return err
	})
	r.expire(r.key)
}

// save stores an exchange; with once, under its text as the ID.
func (r *rightless) save(ctx context.Context, what, text string, once bool) {
	r.Helper()
	err := r.try(what, true, func() error {
		if once {
			return r.memory.SaveOnce(ctx, text, text, "re: "+text)
		}
		return r.memory.Save(ctx, text, "re: "+text)
	})
	if _, inTurn := lockedmemory.Lease(ctx); !inTurn {
		r.expire(r.key)
	}
	if err == nil {
		r.saved = append(r.saved, text)
		return
	}
	if errors.Is(err, distlock.ErrOutcomeUnknown) {
		r.unknown = append(r.unknown, text)
	}
	if once {
		r.named = append(r.named, text)
	}
}

// round makes every call.
func (r *rightless) round(when string) {
	r.Helper()
	r.save(r.Context(), "Save", when+"-1", false)
	r.save(r.Context(), "SaveOnce", when+"-2", true)
	r.inTurn(func(ctx context.Context) {
		_ = r.try("Load in a turn", false, func() error { return r.opens(ctx) })
		r.save(ctx, "Save in a turn", when+"-3", false)
		r.save(ctx, "SaveOnce in a turn", when+"-4", true)
		r.save(ctx, "SaveOnce in a turn, again", when+"-4", true)
		if n := len(r.saved); n > 1 && r.saved[n-1] == r.saved[n-2] {
			r.saved = r.saved[:n-1]
		}
	})
	_ = r.try("Search", false, func() error { _, err := r.memory.Search(r.Context(), "re", 3); return err })
	_ = r.try("Forward", false, func() (last error) {
		for _, err := range r.store.Forward(r.Context(), lockedmemory.Place{}) {
			last = err
		}
		return last
	})
	r.inTurn(func(ctx context.Context) {
		for range 2 { // the first access may fail after its write
			for e, err := range r.store.Forward(ctx, lockedmemory.Place{}) {
				if err == nil { // by itself
					_ = r.try("Replace", true, func() error { return r.store.Replace(ctx, e.Place, e.Place, e) })
					if r.admin.PTTL(ctx, r.stage()).Val() == -1 {
						r.Error("the copy of a Replace has no TTL")
					}
					if r.admin.PTTL(ctx, r.log()).Val() >= 0 {
						r.Error("the history has a TTL")
					}
				}
				break
			}
		}
	})
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
		r.expire(lease.Key())
	}()
	d, err := redisstore.NewDriver(r.client, &storedriver.Retention{Namespace: "session", MaxExchanges: 1, RememberIDs: time.Hour})
	must(r, err)
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
	must(r, err)
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

func (r *rightless) clear() {
	r.Helper()
	err := r.try("Clear", true, func() error { return r.memory.Clear(r.Context()) })
	r.expire(r.key)
	switch {
	case errors.Is(err, distlock.ErrOutcomeUnknown):
		r.unknown, r.saved = append(r.unknown, r.saved...), nil
	case err == nil:
		r.unknown, r.saved = nil, nil
	}
}

// repeat repeats the failed Saves with turn IDs, and checks the stored exchanges.
func (r *rightless) repeat() {
	r.Helper()
	for _, text := range r.named {
		if err := r.memory.SaveOnce(r.Context(), text, text, "re: "+text); err != nil {
			r.Errorf("the repetition of %s: %v", text, err)
		}
	}
	counts := make(map[string]int)
	messages := r.history(r.T)
	for pair := range slices.Chunk(messages, 2) {
		if counts[pair[0]]++; len(pair) < 2 || pair[1] != "re: "+pair[0] {
			r.Errorf("torn: %q", pair)
		}
	}
	for text, n := range counts {
		if n > 1 {
			r.Errorf("%s is stored %d times: %q", text, n, messages)
		}
		if !slices.Contains(slices.Concat(r.saved, r.unknown, r.named), text) {
			r.Errorf("%s is stored without a Save", text)
		}
	}
	for _, text := range r.saved {
		if counts[text] != 1 {
			r.Errorf("%s was acknowledged, and is stored %d times", text, counts[text])
		}
	}
	must(r, r.memory.Clear(r.Context()))
}
