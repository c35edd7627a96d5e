package redisstore_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// The error of a write says whether a copy of the write may have reached Redis.
func TestStore_C_eachErrorSaysWhatBecameOfTheWrite(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		refuses, loses   bool // new connections; the next answer
		notSent, effects bool
	}{
		"no server":                         {refuses: true, notSent: true},
		"each answer is lost":               {loses: true, effects: true},
		"an answer is lost, then no server": {loses: true, refuses: true, effects: true},
	} {
		for name, write := range map[string]func(context.Context, *rig) error{
			"save": func(ctx context.Context, r *rig) error { return r.memory.Save(ctx, "q2", "a2") },
			"save with turn ID": func(ctx context.Context, r *rig) error {
				return r.memory.Save(lockedmemory.WithTurnID(ctx, "id"), "q2", "a2")
			},
			"clear": func(ctx context.Context, r *rig) error { return r.memory.Clear(ctx) },
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				proxy := faultnet.New(t, testservers.StartRedis(t).Addr())
				var refuses atomic.Bool
				r := newRig(t, redis.Options{Addr: proxy.Addr(), DialerRetries: 1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if refuses.Load() {
						return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				}}, nil, &sessionstore.Options{IdleTTL: time.Hour})
				_ = r.memory.Turn(t.Context(), func(ctx context.Context) error {
					must(t, r.memory.Save(ctx, "q", "a"))
					refuses.Store(c.refuses)
					if c.loses {
						proxy.DropReplies(nil)
					} else {
						proxy.Refuse()
					}
					err := write(ctx, r)
					if err == nil || errors.Is(err, driver.ErrNotSent) != c.notSent || driver.MayHaveEffect(err) != c.effects {
						t.Errorf("was it not sent: %t, and may it have an effect: %t; want %t, %t: %v",
							errors.Is(err, driver.ErrNotSent), driver.MayHaveEffect(err), c.notSent, c.effects, err)
					}
					return nil
				})
			})
		}
	}
}

// Data of another program is left alone, and nothing is written.
func TestSave_C_toDataOfAnotherProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t, redis.Options{}, nil, nil)
	must(t, r.client.Set(t.Context(), r.log(), "x", time.Minute).Err())
	err := r.memory.Turn(t.Context(), func(ctx context.Context) error { return r.memory.Save(ctx, "q", "a") })
	if !errors.Is(err, driver.ErrForeign) || driver.MayHaveEffect(err) {
		t.Errorf("Save: %v, want ErrForeign and no effect", err)
	}
}

// ⚑ go-redis leaves the commands of a pipeline without an error if Redis rejects its connection.
func TestSave_C_overAConnectionThatRedisRejects(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	do := func(args ...string) {
		t.Helper()
		if _, err := server.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	do("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
	r := newRig(t, redis.Options{Addr: server.Addr(), Username: "app", Password: "first"}, nil, &sessionstore.Options{IdleTTL: time.Hour})
	_ = r.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, r.memory.Save(ctx, "q", "a"))
		do("ACL", "SETUSER", "app", "resetpass", ">second")
		do("CLIENT", "KILL", "USER", "app")
		if err := r.memory.Save(ctx, "q2", "a2"); !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) {
			t.Errorf("Save: %v, want a definite refusal", err)
		}
		if history, err := r.store.Load(ctx, ""); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("Load: %q, %v, want a refusal", history, err)
		}
		return nil
	})
}
