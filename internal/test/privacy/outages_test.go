package privacy

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

// round makes every call, and takes what fails.
func (w *witness) round(in *instance) {
	w.t.Helper()
	ctx := w.t.Context()
	lease, err := in.locker.Acquire(ctx, session)
	w.take("Acquire", err)
	if err == nil {
		w.take("Extend", lease.Extend(ctx, 400*time.Millisecond))
		w.take("RaiseToken", fencing.RaiseToken(ctx, lease, lease.Fence()+1))
		waiting := make(chan error, 1)
		go func() {
			next, err := in.locker.Acquire(ctx, session)
			_ = next.Release(ctx)
			waiting <- err
		}()
		w.take("a waiter", <-waiting)
	}
	_, err = in.locker.Inspect(ctx, session)
	w.take("Inspect", err)
	w.take("Ping", in.locker.Ping(ctx))
	w.take("Release", lease.Release(ctx))
	w.take("Save", in.memory.Save(ctx, said(1), said(2)))
	w.take("SaveOnce", in.memory.SaveOnce(ctx, turnID, said(1), said(2)))
	w.take("Turn", in.memory.Turn(ctx, func(ctx context.Context) error {
		_, err := in.memory.Load(ctx, text)
		w.take("Load in a turn", err)
		w.take("Save in a turn", in.memory.Save(ctx, said(1), said(2)))
		w.take("Save in a turn", in.memory.Save(ctx, said(1), said(2)))
		w.take("SaveOnce in a turn", in.memory.SaveOnce(ctx, turnID+"2", said(1), said(2)))
		w.take("Clear in a turn", in.memory.Clear(ctx))
		return nil
	}))
	_, err = in.memory.Load(ctx, text)
	w.take("Load", err)
	_, err = in.memory.Search(ctx, text, 3)
	w.take("Search", err)
	w.take("Append", in.memory.Append(ctx, said(1), said(2), said(3)))
	_, err = in.memory.Answer(ctx, turnID+"3", said(1), func(context.Context) ([]note, error) { return []note{said(2)}, nil })
	w.take("Answer", err)
	_, _, err = in.memory.Answered(ctx, turnID)
	w.take("Answered", err)
	last, err := in.memory.Last(ctx, 1)
	w.take("Last", err)
	place := lockedmemory.Place{Fence: 1, N: 1}
	if len(last) > 0 {
		place = last[0].Place
	}
	w.take("Replace", in.memory.Replace(ctx, place, place, lockedmemory.Exchange[note]{Messages: []note{said(4)}}))
	for _, err := range in.memory.Forward(ctx, lockedmemory.Place{}) {
		w.take("Forward", err)
	}
	for _, err := range in.memory.Backward(ctx, lockedmemory.Place{}) {
		w.take("Backward", err)
	}
	for _, err := range in.memory.Sessions(ctx) {
		w.take("Sessions", err)
	}
	_, err = in.memory.Ping(ctx)
	w.take("Ping of the store", err)
	w.take("Clear", in.memory.Clear(ctx))
	w.take("Delete", in.memory.Delete(ctx))
}

func wrongRights(w *witness, server *servers.Redis) {
	for name, rights := range map[string][]string{
		"keys": {"~other:*", "&*", "+@all"}, "evalsha": {"~*", "&*", "+@all", "-evalsha"}, "xadd": {"~*", "&*", "+@all", "-xadd"},
		"xrange": {"~*", "&*", "+@all", "-xrange"}, "set": {"~*", "&*", "+@all", "-set"}, "sessions": {"~distlock:*", "&*", "+@all"},
		"channels": {"~*", "resetchannels", "+@all"}, "del": {"~*", "&*", "+@all", "-del"}, "nothing": {},
	} {
		do(w.t, server, append([]string{"ACL", "SETUSER", "few-" + name, "reset", "on", ">" + password}, rights...)...)
		do(w.t, server, "SCRIPT", "FLUSH")
		w.round(w.open(server, "few-"+name))
	}
}

func wrongPassword(w *witness, server *servers.Redis) {
	do(w.t, server, "ACL", "SETUSER", "known", "on", ">right", "~*", "+@all")
	w.round(w.open(server, "known"))
	w.round(w.open(server, mark+"-unknown"))
	protected := servers.StartRedis(w.t, "--requirepass", "right")
	w.round(w.over(&redis.Options{Addr: protected.Addr(), Password: password}))
	w.round(w.over(&redis.Options{Addr: protected.Addr()}))
}

func unavailable(w *witness, server *servers.Redis) {
	w.round(w.over(redisOptions(w.t, "redis://u:"+password+"@127.0.0.1:1")))
	w.round(w.over(redisOptions(w.t, "redis://u:"+password+"@"+garbler(w.t))))
	in := w.open(server, "all")
	must(w.t, in.client.Ping(w.t.Context()).Err())
	server.Pause()
	defer server.Resume()
	_, err := in.locker.Acquire(w.t.Context(), session)
	w.saw("Acquire", err, distlock.ErrUnavailable)
	w.saw("Save", in.memory.Save(w.t.Context(), said(1), said(2)), distlock.ErrUnavailable)
}

func outOfMemory(w *witness, server *servers.Redis) {
	in := w.open(server, "all")
	must(w.t, in.memory.Save(w.t.Context(), said(1), said(2)))
	do(w.t, server, "CONFIG", "SET", "maxmemory", "1")
	w.round(in)
}

func readOnly(w *witness, server *servers.Redis) {
	in := w.open(server, "all")
	must(w.t, in.memory.Save(w.t.Context(), said(1), said(2)))
	host, port, _ := strings.Cut(servers.StartRedis(w.t).Addr(), ":")
	do(w.t, server, "REPLICAOF", host, port)
	w.round(in)
}

func unknownCommand(w *witness, server *servers.Redis) {
	w.round(w.open(server, "all"))
	w.round(w.open(server, "all", func(o *redis.Options) { o.Protocol = 2 }))
}
