package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/clock"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/childproc"
)

// relayRole is the role of one of two processes that pass a lock to and fro.
const relayRole = "relay"

// relayTask is the first that such a process is told. It opens the subject, and answers ready.
type relayTask struct{ Subject, Addr, Key string }

// What it is told then, one at a time.
const (
	doAcquire = "acquire" // answers at once when it calls, and again when it holds
	doRelease = "release" // answers with the time before the release
	doPing    = "ping"    // answers with how long a PING took
)

// relayEvent is what it answers.
type relayEvent struct {
	What string
	At   clock.Time
	Took time.Duration // of a PING

	Faults Faults // of a release
}

const (
	calls    = "calls"
	holds    = "holds"
	released = "released"
	pinged   = "pinged"
)

func relay(ctx context.Context, lead *childproc.Line, task relayTask) error {
	l, err := subject.Open(task.Subject, subject.Setup{Addr: task.Addr, TTL: ttl})
	if err != nil {
		return err
	}
	defer l.Close()
	ping := redis.NewClient(&redis.Options{Addr: task.Addr, ContextTimeoutEnabled: true})
	defer ping.Close()
	if err := errors.Join(connect(ctx, l, task.Key, 1), ping.Ping(ctx).Err(), lead.Send(ready{})); err != nil {
		return err
	}

	r := &runner{lead: lead, locker: l, ping: ping, key: task.Key}
	ctx, cancel := context.WithCancel(ctx)
	defer r.waiting.Wait()
	defer cancel()
	for {
		var do string
		if err := lead.Receive(&do); err != nil {
			return nil // nothing more to do
		}
		if err := r.do(ctx, do); err != nil {
			return err
		}
	}
}

// runner is the state of a relay process. It does one thing at a time, so no lock guards its
// fields. The order of its tasks is enough: a waiting acquisition has ended before the release.
type runner struct {
	lead    *childproc.Line
	locker  subject.Locker
	ping    *redis.Client
	key     string
	held    subject.Held
	waiting sync.WaitGroup
}

func (r *runner) do(ctx context.Context, what string) error {
	switch what {
	case doAcquire:
		return r.acquire(ctx)
	case doRelease:
		r.waiting.Wait()
		event := relayEvent{What: released, At: clock.Now()}
		event.Faults.add(r.held.Release(ctx))
		return r.lead.Send(event)
	case doPing:
		began := clock.Now()
		if err := r.ping.Ping(ctx).Err(); err != nil {
			return err
		}
		at := clock.Now()
		return r.lead.Send(relayEvent{What: pinged, At: at, Took: at.Sub(began)})
	default:
		return fmt.Errorf("nothing is called %q", what)
	}
}

// acquire returns when the acquisition has begun. After a failure the other process gets no answer,
// and reads the reason on stderr.
func (r *runner) acquire(ctx context.Context) error {
	if err := r.lead.Send(relayEvent{What: calls, At: clock.Now()}); err != nil {
		return err
	}
	r.waiting.Go(func() {
		held, err := r.locker.Acquire(ctx, r.key)
		at := clock.Now()
		if err == nil {
			r.held = held
			err = r.lead.Send(relayEvent{What: holds, At: at})
		}
		if err != nil && ctx.Err() == nil {
			_ = r.lead.Send(relayEvent{What: err.Error()})
		}
	})
	return nil
}
