package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("%s: %v, want ErrRefused", what, err)
	}
}

// Sessions fill a server. Then no turn begins, and what frees memory works until the others work again.
func TestFullMemory_C_freedByDeletes(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--maxmemory-policy", "noeviction")
	r := newRig(t, server)
	used, err := strconv.Atoi(server.Info("used_memory"))
	must(t, err)
	must(t, r.client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used+4<<20)).Err())
	var sessions []*rig
	for full := false; !full; {
		s := r.named(t, "s"+strconv.Itoa(len(sessions)))
		sessions = append(sessions, s)
		for n := 0; n < 4 && !full; n++ {
			err := s.memory.Save(t.Context(), strconv.Itoa(n), strings.Repeat("x", 100<<10))
			if full = err != nil; full {
				wantRefused(t, "Save", err)
			}
		}
	}
	full := func() { // even when the server has freed the buffers of its clients
		t.Helper()
		used, err := strconv.Atoi(server.Info("used_memory"))
		must(t, err)
		buffers, err := strconv.Atoi(server.Info("mem_clients_normal"))
		must(t, err)
		must(t, r.client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used-buffers-64<<10)).Err())
	}
	full()
	fails := func(context.Context) error { t.Error("the turn has begun"); return nil }
	for _, s := range []*rig{sessions[0], r} { // an old and a new session
		wantRefused(t, "Turn", s.memory.Turn(t.Context(), fails))
		_, err := s.memory.Answer(t.Context(), "id", "q", func(ctx context.Context) ([]string, error) { return nil, fails(ctx) })
		wantRefused(t, "Answer", err)
		wantRefused(t, "Save", s.memory.Save(t.Context(), "q", "a"))
	}
	at := sessions[0].places(t)
	edited := exchange("edited")
	wantRefused(t, "Replace with content", sessions[0].memory.Replace(t.Context(), at[0], at[0], edited))

	must(t, sessions[0].memory.Replace(t.Context(), at[1], at[2]))
	full()
	must(t, sessions[1].memory.Clear(t.Context()))
	full()
	must(t, sessions[2].memory.Delete(t.Context()))
	full()
	must(t, sessions[2].memory.Delete(t.Context())) // of nothing
	for _, s := range sessions[3:] {
		must(t, s.memory.Delete(t.Context()))
	}
	if got := sessions[0].history(t); len(got) != 4 || got[0] != "0" || got[2] != "3" {
		t.Errorf("after a Replace by nothing, %d messages stay", len(got))
	}
	for _, s := range sessions[1:] {
		if got := s.history(t); len(got) > 0 {
			t.Errorf("after a Clear or Delete, %d messages stay", len(got))
		}
	}
	must(t, r.memory.Save(t.Context(), "q", "a"))
}

// The memory is full since a turn has begun. Each call is refused with its first request to the session, or
// frees memory.
func TestFullMemory_C_insideTurn(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--maxmemory-policy", "noeviction")
	proxy := faultnet.New(t, server.Addr())
	r := newRig(t, proxy)
	edited := exchange("edited")
	load := func(ctx context.Context, r *rig) error { _, err := r.memory.Load(ctx, ""); return err }
	first := func(r *rig) lockedmemory.Place { return r.places(t)[0] }
	remove := func(ctx context.Context, r *rig) error { return r.memory.Replace(ctx, first(r), first(r)) }
	warm := r.named(t, "scripts are known")
	must(t, warm.memory.Save(t.Context(), "q", "a"))
	must(t, warm.memory.Replace(t.Context(), first(warm), first(warm), edited))
	must(t, remove(t.Context(), warm))
	for name, c := range map[string]struct {
		call  func(ctx context.Context, r *rig) error
		frees bool
		isNew bool // the call also works in a session that is not there
	}{
		"Load":                 {load, false, true},
		"Save":                 {func(ctx context.Context, r *rig) error { return r.memory.Save(ctx, "q", "a") }, false, true},
		"Replace with content": {func(ctx context.Context, r *rig) error { return r.memory.Replace(ctx, first(r), first(r), edited) }, false, false},
		"Replace by nothing":   {remove, true, false},
		"Clear":                {func(ctx context.Context, r *rig) error { return r.memory.Clear(ctx) }, true, true},
		"Delete":               {func(ctx context.Context, r *rig) error { return r.memory.Delete(ctx) }, true, true},
	} {
		for _, history := range []int{0, 1, 3} {
			if history == 0 && !c.isNew {
				continue
			}
			s := r.named(t, name+strconv.Itoa(history))
			for range history {
				must(t, s.memory.Save(t.Context(), "q", "a"))
			}
			must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
				must(t, r.client.ConfigSet(ctx, "maxmemory", "1").Err())
				steps := 0
				counted := proxy.HoldRequests(func(request []byte) bool {
					if faultnet.Containing(s.stage())(request) {
						steps++
					}
					return false
				})
				err := c.call(ctx, s)
				counted.Release()
				must(t, r.client.ConfigSet(ctx, "maxmemory", "0").Err())
				switch {
				case c.frees && err != nil:
					t.Errorf("%s of %d exchanges: %v", name, history, err)
				case !c.frees:
					wantRefused(t, name, err)
					if keys := r.client.Exists(ctx, s.stage()).Val(); steps > 1 || keys > 0 {
						t.Errorf("%s of %d exchanges is refused after %d steps", name, history, steps)
					}
				}
				return nil
			}))
			want := slices.Repeat([]string{"q", "a"}, history)
			switch {
			case name == "Replace by nothing":
				want = want[2:]
			case c.frees:
				want = nil
			}
			if got := s.history(t); !slices.Equal(got, want) {
				t.Errorf("after %s of %d exchanges, the history is %q", name, history, got)
			}
		}
	}
}

// A Delete waits behind a turn of its process that waits, too. The memory becomes full: the turn is refused,
// and the Delete goes on waiting.
func TestFullMemory_L_waitingDelete_outlivesRefusedTurn(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--maxmemory-policy", "noeviction")
	holder := newRig(t, server)
	other := newRig(t, server, &distlock.Options{TTL: 2 * time.Second})
	waiting := func(n int) {
		servers.Await(t, 5*time.Second, "waiters", func() bool {
			_, err := other.locker.TryAcquire(t.Context(), holder.key)
			var busy *distlock.BusyError
			return errors.As(err, &busy) && busy.Waiters == n
		})
	}
	turn, deleted := make(chan error, 1), make(chan error, 1)
	holder.turn(t, func(ctx context.Context) {
		must(t, holder.memory.Save(ctx, "q", "a"))
		go func() { turn <- other.memory.Turn(t.Context(), idle) }()
		waiting(1)
		go func() { deleted <- other.memory.Delete(t.Context()) }()
		waiting(2)
		must(t, holder.client.ConfigSet(ctx, "maxmemory", "1").Err())
		wantRefused(t, "Turn", <-turn)
	})
	must(t, <-deleted)
	if got := holder.history(t); len(got) > 0 {
		t.Errorf("the history is %q", got)
	}
}
