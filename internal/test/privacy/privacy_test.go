package privacy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

var scenes = []struct {
	name string
	run  func(w *witness, server *servers.Redis)
	args []string // for a server of its own
}{
	{name: "busy", run: busy},
	{name: "lost", run: lost},
	{name: "stale", run: stale},
	{name: "wrongInput", run: wrongInput},
	{name: "codec", run: codec},
	{name: "brokenEntries", run: brokenEntries},
	{name: "foreignData", run: foreignData},
	{name: "wrongRights", run: wrongRights},
	{name: "wrongPassword", run: wrongPassword},
	{name: "unavailable", run: unavailable},
	{name: "outOfMemory", run: outOfMemory, args: []string{}},
	{name: "readOnly", run: readOnly, args: []string{}},
	// Redis repeats the first arguments of a command that it does not know.
	{name: "unknownCommand/evalsha", run: unknownCommand, args: []string{"--rename-command", "EVALSHA", ""}},
	{name: "unknownCommand/xadd", run: unknownCommand, args: []string{"--rename-command", "XADD", ""}},
	{name: "unknownCommand/xrange", run: unknownCommand, args: []string{"--rename-command", "XRANGE", ""}},
	{name: "unknownCommand/subscribe", run: unknownCommand, args: []string{"--rename-command", "SUBSCRIBE", ""}},
	{name: "unknownCommand/pexpire", run: unknownCommand, args: []string{"--rename-command", "PEXPIRE", ""}},
}

// No session, message, turn ID or password is in any error, log line, span or metric.
func TestPrivacy(t *testing.T) {
	w := newWitness(t)
	defer redis.SetLogger(nil)
	start := func(args ...string) *servers.Redis {
		server := servers.StartRedis(t, args...)
		do(t, server, "ACL", "SETUSER", "all", "on", ">"+password, "~*", "&*", "+@all")
		return server
	}
	shared := start()
	for _, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) {
			w.t = t
			server := shared
			if scene.args != nil {
				server = start(scene.args...)
			}
			do(t, server, "FLUSHALL")
			before := w.errors
			scene.run(w, server)
			if w.errors == before {
				t.Error("there was no error")
			}
		})
	}
	w.t = t
	w.verdict()
}

func busy(w *witness, server *servers.Redis) {
	w.patient(300 * time.Millisecond) // each of several calls waits for so long
	one, other := w.open(server, "all"), w.open(server, "all")
	ctx := w.t.Context()
	w.memory(other, nil, &lockedmemory.Options{Busy: lockedmemory.Refuse})
	must(w.t, one.memory.Turn(ctx, func(inner context.Context) error {
		_, err := other.locker.TryAcquire(ctx, session)
		w.saw("TryAcquire", err, distlock.ErrNotAcquired)
		_, err = other.locker.Acquire(ctx, session)
		w.saw("Acquire", err, distlock.ErrNotAcquired)
		w.saw("AcquireWithRetry", other.locker.NewLock(session, 0).AcquireWithRetry(ctx, 2, time.Millisecond), distlock.ErrNotAcquired)
		w.saw("Turn", other.memory.Turn(ctx, func(context.Context) error { return nil }), distlock.ErrNotAcquired)
		w.saw("Save", other.memory.Save(ctx, said(1), said(2)), distlock.ErrNotAcquired)
		w.saw("Save by itself", one.memory.Save(ctx, said(1), said(2)), distlock.ErrNotAcquired)
		w.saw("a released handle", other.locker.NewLock(session, 0).Release(ctx), distlock.ErrNotHeld)
		return one.memory.Save(inner, said(1), said(2))
	}))
	closed := w.open(server, "all")
	must(w.t, closed.locker.Close(ctx))
	_, err := closed.locker.Acquire(ctx, session)
	w.saw("a closed Locker", err, distlock.ErrClosed)
}

func lost(w *witness, server *servers.Redis) {
	w.patient(10 * time.Second)
	in := w.open(server, "all")
	ctx := w.t.Context()
	forget := func() {
		do(w.t, server, "PEXPIRE", "distlock:{"+session+"}:lock", "86400000")
	}
	lease, err := in.locker.Acquire(ctx, session)
	must(w.t, err)
	forget()
	w.saw("Extend", lease.Extend(ctx, time.Minute), distlock.ErrLost)
	w.saw("Guard", lease.Guard(ctx, func(context.Context) error { return nil }), distlock.ErrLost)
	w.saw("the cause", context.Cause(lease.Context()), distlock.ErrLost)
	w.saw("Turn", in.memory.Turn(ctx, func(ctx context.Context) error {
		forget()
		<-ctx.Done() // the renewal learns of it
		w.saw("Save", in.memory.Save(ctx, said(1), said(2)), distlock.ErrLost)
		_, err := in.memory.Load(ctx, text)
		w.saw("Load", err, distlock.ErrLost)
		return nil
	}), distlock.ErrLost)
	lease, err = in.locker.Acquire(ctx, session)
	must(w.t, err)
	forget()
	w.saw("Release", lease.Release(ctx), distlock.ErrLost)
	lease, err = in.locker.Acquire(ctx, session)
	must(w.t, err)
	forget()
	w.saw("RaiseToken", fencing.RaiseToken(ctx, lease, lease.Fence()+1000), distlock.ErrLost)
}

func stale(w *witness, server *servers.Redis) {
	one, other := w.open(server, "all"), w.open(server, "all")
	ctx := w.t.Context()
	var old context.Context
	must(w.t, one.memory.Turn(ctx, func(ctx context.Context) error {
		old = context.WithoutCancel(ctx)
		return one.memory.Save(ctx, said(1), said(2))
	}))
	must(w.t, other.memory.Save(ctx, said(3), said(4)))
	var refused *sessionstore.StaleError
	err := one.store.Save(old, said(5), said(6))
	w.saw("Save", err, distlock.ErrLost)
	if !errors.As(err, &refused) {
		w.t.Errorf("%v is no StaleError", err)
	}
	w.saw("Clear", one.store.Clear(old), distlock.ErrLost)
	w.saw("Save after the turn", one.memory.Save(old, said(5), said(6)), distlock.ErrNotHeld)
	w.saw("without a lease", one.store.Save(ctx, said(5), said(6)), distlock.ErrNotHeld)
}

func wrongInput(w *witness, server *servers.Redis) {
	in := w.open(server, "all")
	ctx := w.t.Context()
	for _, key := range []string{session + "\x00", session + "\r\n", session + strings.Repeat("x", 1024), session + "\xff"} {
		_, err := in.locker.Acquire(ctx, key)
		w.saw("a bad key", err, distlock.ErrInvalidKey)
		_, err = in.locker.Inspect(ctx, key)
		w.saw("a bad key", err, distlock.ErrInvalidKey)
	}
	must(w.t, in.memory.SaveOnce(ctx, turnID, said(1), said(2)))
	w.saw("another SaveOnce of the ID", in.memory.SaveOnce(ctx, turnID, said(3), said(4)), sessionstore.ErrIDConflict)
	must(w.t, in.memory.Turn(ctx, func(ctx context.Context) error {
		w.saw("likewise, in a turn", in.memory.SaveOnce(ctx, turnID, said(3), said(4)), sessionstore.ErrIDConflict)
		return nil
	}))
	w.saw("a long ID", in.memory.SaveOnce(ctx, turnID+strings.Repeat("x", 512), said(1), said(2)), lockedmemory.ErrInvalidID)
	must(w.t, in.memory.Clear(ctx))
	for id, sentinel := range map[string]error{
		turnID: lockedmemory.ErrAnswerGone, turnID + "2": sessionstore.ErrIDConflict,
		turnID + strings.Repeat("x", 512): lockedmemory.ErrInvalidID,
	} {
		_, err := in.memory.Answer(ctx, id, said(1), func(ctx context.Context) ([]note, error) {
			return []note{said(3)}, in.memory.SaveOnce(ctx, id, said(1), said(2))
		})
		w.saw("Answer", err, sentinel)
	}
	first, second := lockedmemory.Place{Fence: 1, N: 1}, lockedmemory.Place{Fence: 1, N: 2}
	w.saw("Replace of nothing", in.memory.Replace(ctx, first, second), sessionstore.ErrRange)
	large := note{Text: strings.Repeat(text, 200)}
	w.saw("a large message", in.memory.Save(ctx, large, large), sessionstore.ErrTooLarge)
	_, err := in.memory.Search(ctx, text, -1)
	w.saw("a bad k", err, distlock.ErrInvalidOption)
	for _, url := range []string{
		"redis://u:" + password + "/x@localhost", "redis://:" + password + "#x@localhost", "redis://localhost?password=" + password,
		"rediss://u:" + password + "%@localhost", "other://u:" + password + "@localhost",
		"redis+sentinel://u:" + password + "@localhost", "redis+cluster://a:" + password + "@localhost/3",
		"redis://u:" + password + "@localhost:x",
		"redis+sentinel://h?master_name=m&sentinel_password=a&" + password + "=x", password,
	} {
		_, err := lockurl.Open(ctx, url, nil)
		w.saw("a bad URL", err, distlock.ErrInvalidOption)
	}
}

// codec is about messages that cannot be decoded, as those of another version of the application.
func codec(w *witness, server *servers.Redis) {
	in := w.open(server, "all")
	ctx := w.t.Context()
	for _, message := range []string{
		text, `{"Text":"` + text + `"`, `{"Text":["` + text + `"]}`, `{"At":"` + text + `"}`, `{"N":"` + text + `"}`, `"` + text + `"`,
		`{"N":1` + strings.Repeat("0", 30) + `}`, `{"Text":"\x` + text + `"}`, `["` + text + `"]`,
	} {
		do(w.t, server, "FLUSHALL")
		do(w.t, server, "XADD", "session:{"+session+"}:log", "1-1", "op", strings.Repeat("0", 32), "m", message, "m", message)
		_, err := in.memory.Load(ctx, "")
		w.saw("Load", err, sessionstore.ErrBroken, sessionstore.ErrCodec)
		if err != nil && strings.Contains(err.Error(), "0000000") {
			w.t.Errorf("it shows a number of the message: %v", err)
		}
		_, err = in.memory.Search(ctx, text, 3)
		w.saw("Search", err, sessionstore.ErrBroken)
		for _, err := range in.store.Forward(ctx, lockedmemory.Place{}) {
			w.saw("Forward", err, sessionstore.ErrBroken)
		}
	}
	// A year that JSON cannot have.
	w.saw("Save", in.memory.Save(ctx, note{Text: text, At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, said(1)), sessionstore.ErrCodec)
}

func brokenEntries(w *witness, server *servers.Redis) {
	in := w.open(server, "all")
	for _, fields := range [][]string{
		{text, text}, {"op", text}, {"op", strings.Repeat("0", 32), "m", text, "id", text}, {"op", "x", "m", "{}", "m", "{}", text, turnID},
		{"mark", text},
		{"clear", text}, {"op", "x", "m", "{}", "m", "{}", "id", turnID, "id", turnID},
	} {
		do(w.t, server, append([]string{"XADD", "session:{" + session + "}:log", "*"}, fields...)...)
	}
	_, err := in.memory.Load(w.t.Context(), "")
	w.saw("Load", err, sessionstore.ErrBroken)
	do(w.t, server, "XADD", "session:{"+session+"}:log", "9007199254740992-7", text, text)
	w.saw("Save", in.memory.Save(w.t.Context(), said(1), said(2)), distlock.ErrInvalidOption)
}

func foreignData(w *witness, server *servers.Redis) {
	in := w.open(server, "all")
	ctx := w.t.Context()
	for _, suffix := range []string{"lock", "queue", "waiters", "tombstones"} {
		for _, put := range [][]string{{"SET", "", text}, {"RPUSH", "", text}, {"HSET", "", text, text}, {"ZADD", "", "1", text}} {
			do(w.t, server, "FLUSHALL")
			put[1] = "distlock:{" + session + "}:" + suffix
			do(w.t, server, put...)
			lease, err := in.locker.Acquire(ctx, session)
			w.take(suffix+", Acquire", err)
			_ = lease.Release(ctx)
			_, err = in.locker.Inspect(ctx, session)
			w.take(suffix+", Inspect", err)
		}
	}
	for _, suffix := range []string{"log", "mark", "ids"} {
		for _, put := range [][]string{{"SET", "", text}, {"RPUSH", "", text}} {
			do(w.t, server, "FLUSHALL")
			put[1] = "session:{" + session + "}:" + suffix
			do(w.t, server, put...)
			w.take(suffix+", Save", in.memory.Save(ctx, said(1), said(2)))
			w.take(suffix+", SaveOnce", in.memory.SaveOnce(ctx, turnID, said(1), said(2)))
			_, err := in.memory.Load(ctx, "")
			w.take(suffix+", Load", err)
			w.take(suffix+", Clear", in.memory.Clear(ctx))
		}
	}
}
