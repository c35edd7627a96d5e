package scenario

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/belugalock/belugalock/bench/internal/clock"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/bench/internal/wire"
	"github.com/belugalock/belugalock/internal/childproc"
)

// crowdRole is the role of a process in which some goroutines want the same key again and again,
// and hold it for a moment.
const crowdRole = "crowd"

// crowdTask is the first that such a process is told. It opens the subject, and answers ready.
type crowdTask struct {
	Subject, Addr, Key string
	Goroutines         int
	Keys               int // of the goroutines, in turn; 0: one
	Hold               time.Duration
}

// key returns that of a goroutine.
func (t crowdTask) key(goroutine int) string {
	if t.Keys == 0 {
		return t.Key
	}
	return t.Key + "-" + strconv.Itoa(goroutine%t.Keys)
}

type ready struct{}

// crowdWindow is the second that it is told: when to begin, and between which times to count.
type crowdWindow struct{ Begin, From, To clock.Time }

// crowdResult is what it answers, after the end.
type crowdResult struct {
	Members  []crowdMember
	End      clock.Time // of the window
	Commands int64      // sent between the times
	// Remote are the acquisitions between the times that came from another process: of this library on
	// PostgreSQL alone.
	Remote int64
}

// crowdMember is the count of one goroutine. An acquisition belongs to the window if it was granted
// there; its wait counts from the call on, also if the call was earlier.
type crowdMember struct {
	Waits []time.Duration
	// Granted are the moments at which these waits ended.
	Granted []clock.Time
	// Unfinished is the time up to the end of the window of a wait that had not ended, 0 for none.
	// Without it, starved goroutines would not be seen.
	Unfinished time.Duration
	Faults     Faults
}

func crowd(ctx context.Context, lead *childproc.Line, task crowdTask) error {
	var commands wire.Counter
	l, err := subject.Open(task.Subject, subject.Setup{Addr: task.Addr, TTL: ttl, Commands: &commands})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := connect(ctx, l, task.Key, task.Goroutines); err != nil {
		return err
	}
	if err := lead.Send(ready{}); err != nil {
		return err
	}

	var window crowdWindow
	if err := lead.Receive(&window); err != nil {
		return err
	}
	result := crowdResult{Members: make([]crowdMember, task.Goroutines), End: window.To}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sleep(ctx, window.Begin.Until())
	var all sync.WaitGroup
	for i := range result.Members {
		all.Go(func() {
			if err := result.Members[i].contend(ctx, l, task.key(i), task.Hold, window); err != nil {
				cancel(err)
			}
		})
	}
	sleep(ctx, window.From.Until())
	remote := func() int64 { return 0 }
	if counts, ok := l.(interface{ RemoteHandoffs() int64 }); ok {
		remote = counts.RemoteHandoffs
	}
	before, remoteBefore := commands.Commands(), remote()
	sleep(ctx, window.To.Until())
	result.Commands, result.Remote = commands.Commands()-before, remote()-remoteBefore
	cancel(errOver)
	all.Wait()
	if cause := context.Cause(ctx); cause != errOver {
		return cause
	}
	return lead.Send(result)
}

// connect has every goroutine take a lock of its own once, so that connections are open and scripts
// loaded.
func connect(ctx context.Context, l subject.Locker, key string, goroutines int) error {
	keys := make([]string, goroutines)
	for i := range keys {
		keys[i] = key + "-warm-up-" + string(rune('a'+i))
	}
	_, _, _, err := rush(ctx, l, keys, 0, 20*time.Millisecond)
	return err
}

// contend takes the lock again and again until the window ends.
func (m *crowdMember) contend(ctx context.Context, l subject.Locker, key string, hold time.Duration, window crowdWindow) error {
	uncancelled := context.WithoutCancel(ctx)
	m.Waits, m.Granted = make([]time.Duration, 0, 4096), make([]clock.Time, 0, 4096)
	for {
		called := clock.Now()
		if called >= window.To {
			return nil
		}
		held, err := l.Acquire(ctx, key)
		granted := clock.Now()
		if granted >= window.To {
			m.Unfinished = window.To.Sub(called)
		} else if err == nil && granted >= window.From {
			m.Waits, m.Granted = append(m.Waits, granted.Sub(called)), append(m.Granted, granted)
		}
		if err != nil {
			if granted >= window.To {
				return nil // the end has cancelled it
			}
			return err
		}
		time.Sleep(hold)
		m.Faults.add(held.Release(uncancelled))
	}
}
