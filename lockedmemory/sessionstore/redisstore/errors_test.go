package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// ground is a session with its lock on one server, and its store on another server behind a proxy.
type ground struct {
	*testing.T
	*rig
	server *servers.Redis
	proxy  *faultnet.Proxy
	cutOff atomic.Bool // new connections fail
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{T: t, server: servers.StartRedis(t)}
	g.proxy = faultnet.New(t, g.server.Addr())
	g.rig = newRig(t, g.proxy, &sessionstore.Retention{IdleTTL: time.Hour}, &redis.Options{DialerRetries: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if g.cutOff.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	g.locks(t, newRig(t).client, &distlock.Options{TTL: 4 * time.Second})
	g.rig = g.named(t, t.Name())
	return g
}

// lose drops n answers about the session, all for 0.
func (g *ground) lose(n int) {
	match := faultnet.Containing("{" + g.key + "}:")
	if n > 0 {
		match = faultnet.First(n, match)
	}
	g.proxy.DropReplies(match)
}

// The token of the lease is shown to the store before a call, unless it is the first.
func TestStore_C_failedCall_kind(t *testing.T) {
	t.Parallel()
	unavailable, refused, unknown := distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown
	const (
		writes = "Save, first Save, SaveOnce, Clear, first Clear"
		reads  = "Load, first Load, Search"
		lists  = "Pending, first Pending, Inboxes"
	)
	command := func(words ...string) func(*ground) { return func(g *ground) { do(g, g.server, words...) } }
	without := func(rights ...string) func(*ground) {
		return command(append([]string{"ACL", "SETUSER", "default"}, rights...)...)
	}
	for what, c := range map[string]struct {
		fault func(*ground)
		calls map[string]error
		text  string
	}{
		"no server": {func(g *ground) {
			g.proxy.Refuse()
			servers.Await(g, 5*time.Second, "a refused dial", func() bool {
				var op *net.OpError
				return errors.As(g.client.Ping(g.Context()).Err(), &op) && op.Op == "dial"
			})
		}, map[string]error{writes: unavailable, "Put": unavailable, reads: unavailable, lists: unavailable}, ""},
		"each answer is lost": {func(g *ground) { g.lose(0) }, map[string]error{writes: unknown, "Stop, Put": unknown, reads: unavailable, "Pending, first Pending": unavailable}, ""},
		"an answer is lost, then no server": {func(g *ground) {
			g.lose(1)
			g.cutOff.Store(true)
		}, map[string]error{writes: unknown, "Put": unknown, reads: unavailable, "Pending, first Pending": unavailable}, ""},
		"the memory is full":       {command("CONFIG", "SET", "maxmemory", "1"), map[string]error{"Save, first Save, SaveOnce, AnswerAll, Put, first Load, first Pending": refused}, "maxmemory"},
		"a replica":                {command("REPLICAOF", "127.0.0.1", "1"), map[string]error{writes: unavailable, "first Load, Stop, Put": unavailable, lists: unavailable}, "master"},
		"no right to write":        {without("-xadd"), map[string]error{writes: refused, "AnswerAll, first Load, first Pending": refused}, "xadd"},
		"no right to scripts":      {without("-evalsha"), map[string]error{"first Save, SaveOnce, AnswerAll, Clear, first Clear, first Load, Stop, Put, Pending": refused}, "evalsha"},
		"no right to read":         {without("-xrange", "-xrevrange"), map[string]error{reads: refused}, "range"},
		"no right to list":         {without("-scan", "-zscan"), map[string]error{"Sessions, Inboxes": refused}, "scan"},
		"no right to the index":    {without("-zadd", "-zremrangebyscore"), map[string]error{"Put, Inboxes": refused}, "right"},
		"no right after the write": {without("-pexpire", "-unlink"), map[string]error{"first Save, Clear, first Clear": unknown, "SaveOnce, AnswerAll, first Load, first Pending, Stop, Put": refused}, "right"},
		"no right to note a turn":  {without("-hset"), map[string]error{"SaveOnce, AnswerAll, Stop, Put": refused}, "hset"},
		"data of another program": {func(g *ground) {
			do(g, g.server, "DEL", g.log())
			do(g, g.server, "SET", g.log(), "x")
			do(g, g.server, "SET", g.inbox(), "x")
			do(g, g.server, "SET", "session:inboxes", "x")
		}, map[string]error{writes: refused, "Put": refused, reads: refused, lists: refused}, "Namespace"},
		"an item of another program": {func(g *ground) { do(g, g.server, "HSET", g.inbox(), "x", "x") },
			map[string]error{"Put, Pending, first Pending": refused}, "Namespace"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for names, want := range c.calls {
				for _, name := range strings.Split(names, ", ") {
					t.Run(name, func(t *testing.T) {
						g := newGround(t)
						must(t, g.memory.Save(t.Context(), "before", "the turn"))
						g.turn(t, func(ctx context.Context) {
							call, isFirst := strings.CutPrefix(name, "first ")
							if !isFirst && call != "SaveOnce" && call != "Search" && call != "Sessions" && call != "Inboxes" {
								must(t, g.memory.Save(ctx, "before", "the call"))
							}
							c.fault(g)
							err := calls[call](ctx, g.rig)
							for _, each := range []error{unavailable, refused, unknown, distlock.ErrLost, context.Canceled, context.DeadlineExceeded} {
								if errors.Is(err, each) != (each == want) {
									t.Errorf("%v; want %v", err, want)
								}
							}
							if err == nil || !strings.Contains(err.Error(), c.text) {
								t.Errorf("no %q in: %v", c.text, err)
							}
							if rights := strings.HasPrefix(what, "no right"); errors.Is(err, driver.ErrRights) != rights {
								t.Errorf("a right is missing: %t, and the error: %v", rights, err)
							}
						})
					})
				}
			}
		})
	}
}

// ⚑ go-redis leaves the commands of a pipeline without an error if Redis rejects its connection.
func TestSave_C_rejectedConnection_refused(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	do(t, server, "ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
	r := newRig(t, server, &redis.Options{Username: "app", Password: "first"}, &sessionstore.Retention{IdleTTL: time.Hour})
	_ = r.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, r.memory.Save(ctx, "q", "a"))
		do(t, server, "ACL", "SETUSER", "app", "resetpass", ">second")
		do(t, server, "CLIENT", "KILL", "USER", "app")
		if err := r.memory.Save(ctx, "q2", "a2"); !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) {
			t.Errorf("Save: %v, want a definite refusal", err)
		}
		if history, err := r.store.Load(ctx, ""); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("Load: %q, %v, want a refusal", history, err)
		}
		return nil
	})
}

// Locks in one process do not protect sessions that all processes see.
func TestStore_C_locksInProcess_refused(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	locks := memlock.NewDriver()
	for name, d := range map[string]driver.Driver{"memlock": locks, "memlock, wrapped": drivertest.NewFaults(locks)} {
		locker, err := distlock.New(d, nil)
		must(t, err)
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		_, err = lockedmemory.New(s.store, locker, lockedmemory.FixedKey(s.key), nil)
		if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "redislock.New") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error of a refused Save says only that nothing was written, even if the lease ends during the
// Save.
func TestSave_S2_refused_nothingWritten(t *testing.T) {
	for name, c := range map[string]struct {
		id, output string
		conflict   bool // refused without a check of the token; otherwise stale
	}{"stale": {"", "a", false}, "stale, with ID": {"new", "a", false}, "used ID": {"id", "other", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noticed := new(noticing)
			s, theirs := newRig(t, &distlock.Options{Observer: noticed}), newRig(t)
			must(t, s.memory.SaveOnce(t.Context(), "id", "q", "a"))
			ours := s.around(t, &overtaken{s.store, func(ctx context.Context) {
				noticed.by = ctx
				s.expire(ctx)
				if !c.conflict {
					theirs.turn(t, func(ctx context.Context) { must(t, theirs.opens(ctx)) })
				}
			}})
			err := ours.Turn(t.Context(), func(ctx context.Context) error {
				save := func() error { return ours.Save(ctx, "q", c.output) }
				if c.id != "" {
					save = func() error { return ours.SaveOnce(ctx, c.id, "q", c.output) }
				}
				err, stale := save(), new(sessionstore.StaleError)
				if !errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrOutcomeUnknown) ||
					errors.Is(err, sessionstore.ErrIDConflict) != c.conflict || errors.As(err, &stale) == c.conflict {
					t.Errorf("Save: %v", err)
				}
				return nil
			})
			if !errors.Is(err, distlock.ErrLost) {
				t.Errorf("Turn: %v", err)
			}
		})
	}
}

// overtaken calls before each Save and SaveOnce of the store, and returns after the loss of the lease.
type overtaken struct {
	*sessionstore.Store[string, string]
	before func(ctx context.Context)
}

func (o *overtaken) Save(ctx context.Context, input, output string) error {
	return o.then(ctx, func() error { return o.Store.Save(ctx, input, output) })
}

func (o *overtaken) SaveOnce(ctx context.Context, id string, messages ...string) error {
	return o.then(ctx, func() error { return o.Store.SaveOnce(ctx, id, messages...) })
}

func (o *overtaken) then(ctx context.Context, save func() error) error {
	o.before(ctx)
	err := save()
	if lease, ok := lockedmemory.Lease(ctx); ok {
		_ = lease.Extend(ctx, time.Minute)
	}
	<-ctx.Done()
	return err
}

// noticing delays the end of a RaiseToken until the caller has noticed the loss.
type noticing struct{ by context.Context }

func (n *noticing) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (n *noticing) End(_ context.Context, op *distlock.Operation) {
	if op.Name == distlock.OpRaiseToken {
		<-n.by.Done()
	}
}

// After a SaveOnce with a known ID, a stale lease is still refused.
func TestStore_S2_knownID_staleLease(t *testing.T) {
	t.Parallel()
	old, next := newRig(t), newRig(t)
	must(t, old.memory.SaveOnce(t.Context(), "id", "q", "a"))
	_ = old.memory.Turn(t.Context(), func(ctx context.Context) error {
		old.expire(ctx)
		must(t, next.memory.Save(t.Context(), "q2", "a2"))
		must(t, next.memory.Turn(t.Context(), next.opens))
		_ = old.memory.SaveOnce(ctx, "id", "q", "a")
		if got, err := old.memory.Load(ctx, ""); err == nil {
			t.Errorf("the first Load under the stale lease was not refused: %q", got)
		}
		return nil
	})
}

// A read-only replica may lag behind its master. By its word, no session is gone, no lock has another owner,
// and no turn ID is known: its session may be deleted.
func TestStore_C_laggingReplica_saysReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease, err := r.locker.Acquire(t.Context(), r.key)
	must(t, err)
	replica := servers.StartRedis(t)
	d, err := redisstore.NewDriver(newRig(t, replica).client, nil)
	must(t, err)

	stored := lockedmemory.Place{Fence: lease.Fence(), N: 1}
	access := storedriver.Access{Session: r.key, Lease: lease, Fence: stored.Fence, HistoryUpTo: stored}
	first, known := access, storedriver.Access{Session: r.key + " with an exchange", Lease: lease, Fence: stored.Fence}
	first.FirstAccess = true
	old := func(a storedriver.Access) storedriver.Access {
		a.Fence, a.HistoryUpTo = stored.Fence-(24*time.Hour).Microseconds(), lockedmemory.Place{}
		return a
	}
	messages := [][]byte{[]byte("q"), []byte("a")}
	write := func(a storedriver.Access) storedriver.Write {
		return storedriver.Write{Access: a, N: 2, Op: strings.Repeat("0", 32)}
	}
	save := func(a storedriver.Access, id string, digest byte) (storedriver.Verdict, error) {
		c := storedriver.Content{Messages: messages, IDs: strings.Fields(id), Digest: [16]byte{digest}}
		return d.Append(t.Context(), storedriver.Append{Write: write(a), Content: c})
	}
	replace := func(with ...storedriver.Entry) (storedriver.Verdict, error) {
		return d.Replace(t.Context(), storedriver.Replace{Write: write(access), From: stored, To: stored, New: with})
	}
	if v, err := save(known, "id", 0); err != nil || v.Outcome != storedriver.Done {
		t.Fatalf("Save before the failover: %+v, %v", v, err)
	}
	closing := func(id string) (storedriver.Verdict, error) {
		_, err := d.Close(t.Context(), storedriver.CloseRequest{Session: known.Session, ID: storedriver.HashID(id)})
		return storedriver.Verdict{}, err
	}
	_, err = closing("closed")
	must(t, err)
	put := func(a storedriver.Access, deleted int64, id string) (storedriver.Verdict, error) {
		return d.Put(t.Context(), storedriver.Put{Session: a.Session, Deleted: deleted, ID: id})
	}
	pending := func(a storedriver.Access) (storedriver.Verdict, error) {
		v, _, err := d.Pending(t.Context(), a)
		return v, err
	}
	crowded := storedriver.Access{Session: r.key + " with a large question", Lease: lease, Fence: stored.Fence}
	_, err = save(crowded, "id", 0) // the log is there
	must(t, err)
	_, err = put(known, 0, "pending")
	must(t, err)
	_, err = d.Put(t.Context(), storedriver.Put{Session: crowded.Session, ID: "large", Question: make([]byte, storedriver.InboxBytes)})
	must(t, err)
	elsewhere, err := redisstore.NewDriver(newRig(t, replica).client, &storedriver.Retention{Namespace: "elsewhere"})
	must(t, err)
	do(t, replica, "REPLICAOF", "127.0.0.1", "1")
	for what, call := range map[string]func() (storedriver.Verdict, error){
		"SaveOnce with a known ID":    func() (storedriver.Verdict, error) { return save(known, "id", 0) },
		"SaveOnce with a closed ID":   func() (storedriver.Verdict, error) { return save(known, "closed", 0) },
		"Close of a known ID":         func() (storedriver.Verdict, error) { return closing("id") },
		"other messages under the ID": func() (storedriver.Verdict, error) { return save(known, "id", 1) },
		"Save after another Save":     func() (storedriver.Verdict, error) { return save(access, "id", 0) },
		"Save, old token":             func() (storedriver.Verdict, error) { return save(old(access), "id", 0) },
		"Replace":                     func() (storedriver.Verdict, error) { return replace() },
		"Replace by another": func() (storedriver.Verdict, error) {
			return replace(storedriver.Entry{Place: stored, Messages: messages})
		},
		"first Save after another one": func() (storedriver.Verdict, error) { return save(first, "", 0) },
		"first Save, old token":        func() (storedriver.Verdict, error) { return save(old(first), "", 0) },
		"Put":                          func() (storedriver.Verdict, error) { return put(known, 0, "new") },
		"Put, pending":                 func() (storedriver.Verdict, error) { return put(known, 0, "pending") },
		"Put, answered":                func() (storedriver.Verdict, error) { return put(known, 0, "id") },
		"Put, closed":                  func() (storedriver.Verdict, error) { return put(known, 0, "closed") },
		"Put before a Delete":          func() (storedriver.Verdict, error) { return put(known, 7, "new") },
		"Put into a full inbox":        func() (storedriver.Verdict, error) { return put(crowded, 0, "new") },
		"Pending":                      func() (storedriver.Verdict, error) { return pending(access) },
		"Pending, first access":        func() (storedriver.Verdict, error) { return pending(first) },
		"Pending, without a lease":     func() (storedriver.Verdict, error) { return pending(storedriver.Access{Session: known.Session}) },
		"Inboxes": func() (v storedriver.Verdict, err error) {
			_, _, err = elsewhere.Inboxes(t.Context(), "")
			return v, err
		},
		"Load, old token": func() (storedriver.Verdict, error) {
			page, err := d.Read(t.Context(), storedriver.Read{Access: old(first), Limit: 1})
			return page.Verdict, err
		},
	} {
		if v, err := call(); !errors.Is(err, driver.ErrTemporary) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: outcome %d, %v; want READONLY", what, v.Outcome, err)
		}
	}
}

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
	limit := func(bytes int) { must(t, r.client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err()) }
	limit(info(t, server, "used_memory") + 4<<20)
	var sessions []*rig
	for n := 0; ; n++ {
		if n%4 == 0 {
			sessions = append(sessions, r.named(t, "s"+strconv.Itoa(n/4)))
		}
		if err := sessions[n/4].memory.Save(t.Context(), strconv.Itoa(n%4), strings.Repeat("x", 100<<10)); err != nil {
			wantRefused(t, "Save", err)
			break
		}
	}
	full := func() { // even when the server has freed the buffers of its clients
		t.Helper()
		limit(info(t, server, "used_memory") - info(t, server, "mem_clients_normal") - 64<<10)
	}
	full()
	for _, s := range []*rig{sessions[0], r} { // an old and a new session
		wantRefused(t, "Turn", s.memory.Turn(t.Context(), func(context.Context) error { t.Error("the turn has begun"); return nil }))
		wantRefused(t, "Answer", calls["Answer"](t.Context(), s))
		wantRefused(t, "Save", calls["Save"](t.Context(), s))
	}
	at := sessions[0].places(t)
	sessions[0].at = at[0]
	wantRefused(t, "Replace", calls["Replace"](t.Context(), sessions[0]))

	must(t, sessions[0].memory.Replace(t.Context(), at[1], at[2]))
	full()
	must(t, sessions[1].memory.Clear(t.Context()))
	full()
	must(t, sessions[2].memory.Delete(t.Context()))
	full()
	must(t, sessions[2].memory.Delete(t.Context())) // of nothing
	for _, s := range []*rig{sessions[3], r} {
		must(t, calls["Stop"](t.Context(), s))
	}
	for _, s := range sessions[3:] {
		must(t, s.memory.Delete(t.Context()))
	}
	if got := sessions[0].history(t); len(got) != 4 || got[0] != "0" || got[2] != "3" {
		t.Errorf("after a Replace by nothing, %d messages stay", len(got))
	}
	for _, s := range sessions[1:] {
		s.wantHistory(t)
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
	warm := r.named(t, "scripts are known")
	for _, name := range []string{"Replace", "Replace by nothing"} {
		must(t, warm.memory.Save(t.Context(), "q", "a"))
		warm.at = warm.places(t)[0]
		must(t, calls[name](t.Context(), warm))
	}
	for name, frees := range map[string]bool{"Load": false, "Save": false, "Replace": false, "Replace by nothing": true, "Clear": true, "Delete": true} {
		for _, history := range []int{0, 1, 3} {
			if history == 0 && strings.HasPrefix(name, "Replace") { // there is nothing to replace
				continue
			}
			s := r.named(t, name+strconv.Itoa(history))
			for range history {
				must(t, s.memory.Save(t.Context(), "q", "a"))
				s.at = s.places(t)[0]
			}
			must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
				must(t, r.client.ConfigSet(ctx, "maxmemory", "1").Err())
				steps := 0
				counted := proxy.HoldRequests(func(request []byte) bool {
					if strings.Contains(string(request), s.stage()) {
						steps++
					}
					return false
				})
				err := calls[name](ctx, s)
				counted.Release()
				must(t, r.client.ConfigSet(ctx, "maxmemory", "0").Err())
				switch {
				case frees && err != nil:
					t.Errorf("%s of %d exchanges: %v", name, history, err)
				case !frees:
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
			case frees:
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
	holder.wantHistory(t)
}

// Without any one right of a store, each call works or fails at once with advice. With the right
// again, each acknowledged exchange is stored once, and so is each exchange with a turn ID that was
// repeated.
func TestStore_C_withoutARight(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	all := slices.Concat(ofStore.Needed, ofStore.Lists, ofLock.Needed)
	server := servers.StartRedis(t)
	admin := newRig(t, server).client
	for _, apart := range []bool{false, true} {
		for i, missing := range ofStore.Needed {
			t.Run(fmt.Sprintf("%s,apart=%t", missing, apart), func(t *testing.T) {
				without := slices.Concat(ofStore.Without(missing).Needed, ofStore.Lists)
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
	r.asks(when)
	r.rare(when)
}

// asks makes the calls of an inbox. A Put that is refused keeps nothing, and no key stays for ever.
func (r *rightless) asks(when string) {
	r.Helper()
	must(r, r.admin.Del(r.Context(), "session:inboxes").Err())
	items := func() int64 { return r.admin.HLen(r.Context(), r.inbox()).Val() }
	for _, id := range []string{when + "-q1", when + "-q2", when + "-q1"} {
		before := items()
		err := r.try("Put", true, func() error { return r.memory.Put(r.Context(), id, id) })
		if now := items(); errors.Is(err, distlock.ErrRefused) && now != before {
			r.Errorf("Put of %s: %v, and there are %d items, %d before", id, err, now, before)
		}
	}
	for _, key := range []string{r.inbox(), "session:inboxes"} {
		if r.admin.PTTL(r.Context(), key).Val() == -1 {
			r.Errorf("%s has no TTL", key)
		}
	}
	_ = r.try("Inboxes", false, func() error { return calls["Inboxes"](r.Context(), r.rig) })
	r.inTurn(func(ctx context.Context) {
		_ = r.try("Pending in a turn", false, func() error { return calls["Pending"](ctx, r.rig) })
	})
	_ = r.try("Pending", false, func() error { return calls["Pending"](r.Context(), r.rig) })
	question := []lockedmemory.Question[string]{{ID: when + "-q1", Message: when + "-q1"}}
	err := r.try("AnswerAll", true, func() error {
		results, err := r.memory.AnswerAll(r.Context(), question, func(context.Context, []lockedmemory.Question[string]) ([]string, error) {
			return []string{"re: " + when + "-q1"}, nil
		})
		if err == nil {
			err = results[0].Err
		}
		return err
	})
	r.expire(r.key)
	if err == nil {
		r.saved = append(r.saved, when+"-q1")
	} else if errors.Is(err, distlock.ErrOutcomeUnknown) {
		r.unknown = append(r.unknown, when+"-q1")
	}
	_ = r.try("Pending after an answer", false, func() error { return calls["Pending"](r.Context(), r.rig) })
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
			Content: storedriver.Content{Messages: [][]byte{{'x'}}, IDs: []string{pruning(op)}, Digest: [16]byte([]byte(op))}}
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
	_, err = d.Close(r.Context(), storedriver.CloseRequest{
		Session: lease.Key(), ID: storedriver.HashID("closed"), By: storedriver.HashID("by"), Mark: lease.Fence() + 4,
	})
	did(err)
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
