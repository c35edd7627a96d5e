package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// driverOf makes a driver over a client, and the first access of a lease to the session of the test.
// Its locks are in this process.
func driverOf(t *testing.T, client redis.UniversalClient, keep storedriver.Retention) (storedriver.Driver, storedriver.Access) {
	t.Helper()
	d, err := redisstore.NewDriver(client, &keep)
	must(t, err)
	locker, err := memlock.New(nil)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	lease, err := locker.Acquire(t.Context(), t.Name())
	must(t, err)
	return d, storedriver.Access{Session: t.Name(), Lease: lease, Fence: time.Now().UnixMicro(), FirstAccess: true}
}

func TestSave_storedForm(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	var place string
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		lease, _ := lockedmemory.Lease(ctx)
		place = fmt.Sprintf("%d-1000000", lease.Fence())
		return s.memory.SaveOnce(ctx, "a message", "q", "a")
	}))
	entries, err := s.client.Do(t.Context(), "xrange", s.log(), place, place).Slice()
	must(t, err)
	if len(entries) != 1 {
		t.Fatalf("%d entries at %s", len(entries), place)
	}
	fields := fmt.Sprint(entries[0].([]any)[1])
	op, rest, _ := strings.Cut(strings.TrimPrefix(fields, "[op "), " ")
	if len(op) != 32 || rest != `m "q" m "a" id a message]` {
		t.Errorf("the entry has %s", fields)
	}
}

// Trimming keeps the newest turn whole and no part of another one.
func TestTrim_O_turnsStayWhole(t *testing.T) {
	t.Parallel()
	s := newRig(t, &sessionstore.Retention{MaxExchanges: 5})
	for _, step := range []struct {
		saves int
		loads bool
		want  []int // exchanges of each turn
	}{
		{3, false, []int{3}},
		{2, true, []int{3, 2}},
		{1, true, []int{3, 2, 1}},
		{1, false, []int{2, 1, 1}},
		{7, false, []int{2, 1, 1, 7}},
		{0, true, []int{7}},
		{1, true, []int{7, 1}},
		{1, false, []int{1, 1}},
		{150, false, []int{1, 1, 150}},
		{1, true, []int{150, 1}},
		{0, true, []int{1}},
		{5, true, []int{1, 5}},
		{0, true, []int{5}},
	} {
		must(t, s.memory.Turn(t.Context(), func(ctx context.Context) (err error) {
			if step.loads {
				err = s.opens(ctx)
			}
			for n := range step.saves {
				err = errors.Join(err, s.memory.Save(ctx, fmt.Sprint(n), ""))
			}
			return err
		}))
		var got []int
		last := ""
		for _, e := range s.client.XRange(t.Context(), s.log(), "-", "+").Val() {
			token, _, _ := strings.Cut(e.ID, "-")
			if _, marker := e.Values["mark"]; marker {
				continue
			}
			if token != last {
				got = append(got, 0)
			}
			got[len(got)-1]++
			last = token
		}
		if !slices.Equal(got, step.want) {
			t.Fatalf("after a turn of %d Saves the turns have %v exchanges, want %v", step.saves, got, step.want)
		}
	}
}

// The mark of an expired session lasts for IdleTTL and 24 hours.
func TestMark_S2_outlivesExchanges(t *testing.T) {
	t.Parallel()
	s := newRig(t, servers.SharedRedis(t), &sessionstore.Retention{IdleTTL: time.Hour})
	must(t, s.memory.Save(t.Context(), "q", "a"))
	if life := s.client.PTTL(t.Context(), s.mark()).Val(); life < 25*time.Hour-time.Minute || life > 25*time.Hour {
		t.Errorf("the mark lives for %s", life)
	}
}

// A session without an exchange leaves small keys that expire, whether a turn only loaded or
// cleared.
func TestSession_empty_isSmallAndExpires(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := newRig(t, server)
	ctx := t.Context()
	bytes := func() (sum int64) {
		for _, key := range s.client.Keys(ctx, "*").Val() {
			life, size := s.client.PTTL(ctx, key).Val(), s.client.MemoryUsage(ctx, key).Val()
			if sum += size; life <= 0 || life > 25*time.Hour || size > 300 {
				t.Errorf("%s has %d B and the TTL %s", key, size, life)
			}
		}
		return sum
	}
	must(t, s.memory.Turn(ctx, s.opens))
	t.Logf("loaded: %d B", bytes())
	must(t, s.memory.Save(ctx, "q", "a"))
	must(t, s.client.Expire(ctx, s.log(), time.Hour).Err()) // as with an IdleTTL before
	must(t, s.memory.Turn(ctx, s.opens))
	for _, key := range []string{s.log(), s.mark()} {
		if life := s.client.PTTL(ctx, key).Val(); life != -1 {
			t.Errorf("%s of a session without an IdleTTL has the TTL %s", key, life)
		}
	}
	must(t, s.memory.Clear(ctx))
	t.Logf("cleared: %d B", bytes())
	must(t, s.memory.Turn(ctx, s.opens))
	bytes()
	s.client.FlushAll(ctx)
	d, access := driverOf(t, s.client, storedriver.Retention{})
	for n := range 1000 {
		access.Session = fmt.Sprint("probed-", n)
		_, err := d.Read(ctx, storedriver.Read{Access: access, Limit: 1, ID: "id"})
		must(t, err)
	}
	if sum := bytes(); sum > 200_000 {
		t.Errorf("1,000 probed sessions have %d B", sum)
	} else {
		t.Logf("1,000 probed sessions: %d B", sum)
	}
}

// leaving cancels a caller when the answer to a bare XADD has come.
type leaving struct{ cancel context.CancelFunc }

func (leaving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "xadd" {
			l.cancel()
		}
		return err
	}
}

func (leaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A caller may clear after it has left a Save. No second request of the Save may follow.
func TestSave_O_callerLeft_noSecondRequest(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servers.SharedServer().Addr()})
	s := newRig(t, struct{ redis.UniversalClient }{client}) // which sends the calls itself
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.memory.Clear(ctx))
		left, cancel := context.WithCancel(ctx)
		s.client.AddHook(leaving{cancel})
		if err := s.memory.Save(left, "late", ""); !errors.Is(err, context.Canceled) {
			t.Errorf("Save: %v", err)
		}
	})
	if got := s.history(t); len(got) != 0 {
		t.Errorf("a Save whose caller had left stored %q", got)
	}
}
