package adksession

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestSuite(t *testing.T) {
	options := sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}
	t.Run("redis", func(t *testing.T) { // by a user with the documented rights
		server := servers.StartRedis(t)
		ours, locks := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, "../distlock/redislock/doc.go")
		servers.SetUser(t, server, "user", []string{"TestSuite*"}, slices.Concat(ours.Needed, locks.Needed, locks.Notified)...)
		as := redis.UniversalOptions{Addrs: server.Addrs(), Username: "user", Password: servers.UserPassword}
		sessiontestsuite.RunServiceTests(t, options, func(t *testing.T) session.Service { return newRig(t, as).Service })
		if refused := servers.RefusedToUsers(t, server); refused != "" {
			t.Errorf("the server has refused %s", refused)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		nodes := redis.UniversalOptions{Addrs: servers.StartCluster(t).Addrs()}
		sessiontestsuite.RunServiceTests(t, options, func(t *testing.T) session.Service { return newRig(t, nodes).Service })
	})
	t.Run("postgres", func(t *testing.T) {
		db := database(t)
		sessiontestsuite.RunServiceTests(t, options, func(t *testing.T) session.Service { return newRig(t, db).Service })
	})
}

// A failover drops the last append: the handle is ahead. Another event takes the number of the dropped one.
func TestAppend_handleAhead(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	restore := r.backup(t)
	must(t, r.AppendEvent(t.Context(), h, event("1")))
	restore()
	must(t, r.AppendEvent(t.Context(), r.must(t, t.Context()), event("other")))
	wantError(t, "after the other event", r.AppendEvent(t.Context(), h, event("2")), ErrStale)
	r.wantHistory(t, "other")
}

func TestAppend_answerLost(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	must(t, r.AppendEvent(t.Context(), h, event("1")))
	r.faulty.on(opAppend, 1, loseAnswer)
	must(t, r.AppendEvent(t.Context(), h, event("2", "k", "v")))
	if n := r.faulty.count(opAppend); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
	must(t, r.AppendEvent(t.Context(), h, event("3")))
	r.wantHistory(t, "1", "2", "3")
}

// The answers of a real connection are lost.
func TestAppend_answerLost_onTheWire(t *testing.T) {
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	r := newRig(t, proxy)
	h := r.create(t)
	must(t, r.AppendEvent(t.Context(), h, event("1")))
	dropped := proxy.DropReplies(faultnet.First(1, faultnet.Containing("second event")))
	must(t, r.AppendEvent(t.Context(), h, event("second event")))
	if dropped.Count() != 1 {
		t.Error("no reply was dropped")
	}
	r.wantHistory(t, "1", "second event")
}

// Others append after the lost answer: the event is stored, and its op is not the last one.
func TestAppend_answerLost_othersSince(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	r.faulty.on(opAppend, 1, func(q request, do func() (reply, error)) (reply, error) {
		_, _ = do()
		q.last, q.op, q.event = q.op, "other", []byte(`{}`)
		if got, err := r.faulty.store.do(t.Context(), q); err != nil || got.outcome != done {
			t.Errorf("the other append: %d, %v", got.outcome, err)
		}
		return reply{}, io.EOF
	})
	err := r.AppendEvent(t.Context(), h, event("1"))
	wantError(t, "the append", err, distlock.ErrOutcomeUnknown)
	if errors.Is(err, ErrStale) || r.AppendEvent(t.Context(), h, event("2")) != err {
		t.Error("the outcome is unknown, and the handle has to keep this error")
	}
	r.wantHistory(t, "1", "")
}

// held makes an append whose request stays on its way, and returns the request.
func (r *rig) held(t *testing.T, ctx context.Context, h session.Session) (late request) {
	t.Helper()
	r.faulty.on(opAppend, 1, func(q request, _ func() (reply, error)) (reply, error) {
		late = q
		return reply{}, fmt.Errorf("%w: held", driver.ErrRefused)
	})
	wantError(t, "the held append", r.AppendEvent(ctx, h, event("late", "app:late", "v")), distlock.ErrRefused)
	return late
}

func TestAppend_lateCopy(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rig, t *testing.T)
		want   outcome
	}{
		"after the next Get under a lease": {func(r *rig, t *testing.T) {
			r.under(t, func(ctx context.Context) { r.must(t, ctx) })
		}, stale},
		"after Delete": {func(r *rig, t *testing.T) { must(t, r.delete(t.Context())) }, missing},
		"after Delete and Create": {func(r *rig, t *testing.T) {
			must(t, r.delete(t.Context()))
			r.create(t)
		}, ahead},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			h := r.create(t)
			late := r.held(t, t.Context(), h)
			c.before(r, t)
			if got, err := r.faulty.store.do(t.Context(), late); err != nil || got.outcome != c.want {
				t.Errorf("the late copy: %d, %v, want %d", got.outcome, err, c.want)
			}
			if records, keys := r.stored(t); records+keys != 0 {
				t.Error("the late copy was stored")
			}
		})
	}
}

// The copy of an Append arrives after the next event of its run, under the same token.
func TestAppend_lateCopy_sameToken(t *testing.T) {
	r := newRig(t)
	r.create(t)
	r.under(t, func(ctx context.Context) {
		var late request
		r.faulty.on(opAppend, 1, func(q request, do func() (reply, error)) (reply, error) { late = q; return do() })
		must(t, r.Append(ctx, r.id.app, r.id.user, r.id.name, event("webhook")))
		must(t, r.AppendEvent(ctx, r.must(t, ctx), event("next")))
		if got, err := r.faulty.store.do(ctx, late); err != nil || got.outcome != ahead {
			t.Errorf("the late copy: %d, %v", got.outcome, err)
		}
	})
	r.wantHistory(t, "webhook", "next")
}

// The lock is gone before the release: the event is stored, so there is no error.
func TestAppend_leaseLostMeanwhile(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	r.faulty.on(opAppend, -1, func(_ request, do func() (reply, error)) (reply, error) {
		a, err := do()
		if n := r.client.Del(t.Context(), r.lock()).Val(); n != 1 {
			t.Errorf("%d locks", n)
		}
		return a, err
	})
	must(t, r.AppendEvent(t.Context(), h, event("1")))
	must(t, r.AppendEvent(t.Context(), h, event("2")))
	must(t, r.Append(t.Context(), r.id.app, r.id.user, r.id.name, event("3")))
	if h.Events().Len() != 2 {
		t.Error("the handle has not moved")
	}
	r.wantHistory(t, "1", "2", "3")
}

// A handle from before the lease joins it if it has missed nothing.
func TestPlace_beforeLease(t *testing.T) {
	r := newRig(t)
	older := r.create(t)
	old := r.must(t, t.Context())
	must(t, r.AppendEvent(t.Context(), old, event("0")))
	r.under(t, func(ctx context.Context) {
		h := r.must(t, ctx)
		must(t, r.AppendEvent(ctx, old, event("1")))
		must(t, r.AppendEvent(ctx, h, event("2")))
		before := r.faulty.count(opAppend)
		wantError(t, "the handle that missed 0", r.AppendEvent(ctx, older, event("3")), ErrStale)
		if r.faulty.count(opAppend) != before {
			t.Error("a request was sent")
		}
	})
	r.wantHistory(t, "0", "1", "2")
}

// An append without the lease of the run waits one second, and the run goes on.
func TestAppend_waitsForRun(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	r.under(t, func(ctx context.Context) {
		in := r.must(t, ctx)
		outside, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var busy *distlock.BusyError
		if err := r.AppendEvent(outside, h, event("other")); !errors.As(err, &busy) || outside.Err() != nil {
			t.Errorf("the append outside of the run: %v", err)
		}
		must(t, r.AppendEvent(ctx, in, event("1")))
	})
	r.wantHistory(t, "1")
}

func TestAppend_afterFailure(t *testing.T) {
	r := newRig(t, Options{MaxEvent: 1000})
	h := r.create(t)
	unstorable := event("x")
	unstorable.Actions.StateDelta["x"] = math.Inf(1)
	wantError(t, "an infinite value", r.AppendEvent(t.Context(), h, unstorable), ErrCodec)
	for _, key := range []string{"\xff", "a\x00b"} {
		wantError(t, "a key that is no text", r.AppendEvent(t.Context(), h, event("x", key, "v")), ErrCodec)
	}
	wantError(t, "1,000 bytes of text", r.AppendEvent(t.Context(), h, event(strings.Repeat("x", 1000))), ErrTooLarge)
	must(t, r.AppendEvent(t.Context(), h, event("1")))
	r.held(t, t.Context(), h)
	before := r.faulty.count(opAppend)
	wantError(t, "after a failure", r.AppendEvent(t.Context(), h, event("2")), distlock.ErrRefused)
	if r.faulty.count(opAppend) != before {
		t.Error("a request was sent")
	}
	r.wantHistory(t, "1")
}

func TestAppend_badInput(t *testing.T) {
	r, other := newRig(t), newRig(t)
	h := r.create(t)
	partial := event("x")
	partial.Partial = true
	must(t, r.AppendEvent(t.Context(), h, partial))
	wantError(t, "no event", r.AppendEvent(t.Context(), h, nil), distlock.ErrInvalidOption)
	wantError(t, "no session", r.AppendEvent(t.Context(), nil, event("x")), distlock.ErrInvalidOption)
	wantError(t, "another Service", other.AppendEvent(t.Context(), h, event("x")), distlock.ErrInvalidOption)
	wantError(t, "a long key", r.AppendEvent(t.Context(), h, event("x", strings.Repeat("k", maxStateKey+1), "v")), ErrCodec)
	wantError(t, "no event to Append", r.Append(t.Context(), "a", "u", "s", nil), distlock.ErrInvalidOption)
	wantError(t, "an ID of 129 bytes", r.Append(t.Context(), "a", "u", strings.Repeat("s", 129), partial), distlock.ErrInvalidKey)
	r.wantHistory(t)
}

// RunLive goes on after a failed append. Its later appends do not delay the runs.
func TestAppend_failedHandle_takesNoLock(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	must(t, r.AppendEvent(t.Context(), r.must(t, t.Context()), event("x")))
	wantError(t, "a handle that is behind", r.AppendEvent(t.Context(), h, event("y")), ErrStale)
	r.under(t, func(context.Context) {
		began := time.Now()
		wantError(t, "again", r.AppendEvent(t.Context(), h, event("z")), ErrStale)
		if took := time.Since(began); took >= ownWait {
			t.Errorf("it has waited for %s", took)
		}
	})
}

// An append writes keys of all scopes. Those of temp: stay in the handle.
func TestAppend_scopes(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	e := event("1", "z", "1", "user:b", "2", "temp:t", "3", "app:c", "4", "user:a", "5", "a", "6", "app:b", "7")
	e.Actions.StateDelta["temp:channel"] = make(chan int) // need not be JSON
	must(t, r.AppendEvent(t.Context(), h, e))
	if v, err := h.State().Get("temp:t"); err != nil || v != "3" || len(e.Actions.StateDelta) != 8 {
		t.Errorf("the handle has %v, %v, the event of the caller %d keys", v, err, len(e.Actions.StateDelta))
	}
	found := r.must(t, t.Context())
	for key, want := range map[string]any{"z": "1", "user:b": "2", "app:c": "4", "user:a": "5", "a": "6", "app:b": "7"} {
		if v, err := found.State().Get(key); err != nil || v != want {
			t.Errorf("%s is %v, %v", key, v, err)
		}
	}
	if _, err := found.State().Get("temp:t"); !errors.Is(err, session.ErrStateKeyNotExist) || found.Events().At(0).Actions.StateDelta["temp:t"] != nil {
		t.Error("a key of temp: was stored")
	}
}

// An append that failed inside Redis leaves a record that no header counts, or a state without a header.
func TestAppend_tornStep(t *testing.T) {
	for _, events := range []int{0, 1} {
		t.Run(fmt.Sprint(events), func(t *testing.T) {
			r := newRig(t)
			h := r.create(t)
			want := []string{"1", "2"}
			if events == 1 {
				must(t, r.AppendEvent(t.Context(), h, event("0")))
				want = []string{"0", "1", "2"}
			}
			must(t, r.client.Set(t.Context(), r.key("a"), "of another program", 0).Err())
			wantError(t, "a state that cannot be written", r.AppendEvent(t.Context(), h, event("torn", "app:k", "v")), distlock.ErrOutcomeUnknown)
			if n := r.client.LLen(t.Context(), r.key("e:")).Val(); n != int64(events+1) {
				t.Errorf("%d records", n)
			}
			must(t, r.client.Del(t.Context(), r.key("a")).Err())
			h = r.must(t, t.Context())
			must(t, r.AppendEvent(t.Context(), h, event("1")))
			must(t, r.AppendEvent(t.Context(), h, event("2")))
			r.wantHistory(t, want...)
		})
	}
}

// While the slot of an app moves, its keys are on two nodes. Requests are repeated until the move ends.
func TestSlotMoves_onCluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	r := newRig(t, redis.UniversalOptions{Addrs: cluster.Addrs()})
	h := r.create(t)
	must(t, r.AppendEvent(t.Context(), h, event("1", "app:k", "v")))
	for n, op := range []operation{opAppend, opGet} {
		finish := cluster.BeginMove(r.key("s:"), r.key("s:"))
		r.faulty.on(op, 1, func(_ request, do func() (reply, error)) (reply, error) {
			a, err := do()
			if !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
				t.Errorf("during the move: %v", err)
			}
			finish()
			return a, err
		})
		if n == 0 {
			must(t, r.AppendEvent(t.Context(), h, event("2")))
		}
		r.wantHistory(t, "1", "2")
	}
}
