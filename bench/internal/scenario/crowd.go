package scenario

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/child"
)

// crowdRole is the role of a process in which some goroutines want the same key again and again,
// and hold it for a moment.
const crowdRole = "crowd"

// crowdTask is the first that a process is told. It opens the subject, and answers true.
type crowdTask struct {
	Subject, Addr, Key string
	Goroutines         int
	Hold               time.Duration
}

// crowdWindow is the second that it is told, to begin at once: between which times to count. These are
// times of the wall clock, which all processes of a machine share.
type crowdWindow struct{ From, To time.Time }

// crowdMember is the count of one goroutine. An acquisition belongs to the window if it was granted
// there; its wait counts from the call on, also if the call was earlier.
type crowdMember struct {
	Waits []time.Duration
	// Unfinished is the time up to the end of the window of a wait that had not ended, at most 0 for none.
	// Without it, starved goroutines would not be seen.
	Unfinished time.Duration
}

func crowd(ctx context.Context, lead *child.Line, task crowdTask) error {
	var setup subject.Setup
	defer setup.Close()
	acquire, err := subject.Lockers[task.Subject](&setup, task.Addr)
	if err != nil {
		return err
	}
	if err := connect(ctx, acquire, task.Key, task.Goroutines); err != nil {
		return err
	}
	if err := lead.Send(true); err != nil {
		return err
	}
	var window crowdWindow
	if err := lead.Receive(&window); err != nil {
		return err
	}
	result := make([]crowdMember, task.Goroutines) // what it answers, after the end
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range result {
		all.Go(func() {
			if err := result[i].contend(ctx, acquire, task, window); err != nil {
				cancel(err)
			}
		})
	}
	sleep(ctx, time.Until(window.To))
	cancel(errOver)
	all.Wait()
	if cause := context.Cause(ctx); cause != errOver {
		return cause
	}
	return lead.Send(result)
}

// connect has every goroutine take a lock of its own once, so that connections are open and scripts
// loaded.
func connect(ctx context.Context, acquire subject.Locker, key string, goroutines int) error {
	keys := make([]string, goroutines)
	for i := range keys {
		keys[i] = key + "-warm-up-" + strconv.Itoa(i)
	}
	_, _, err := rush(ctx, acquire, keys, 0, 20*time.Millisecond)
	return err
}

// contend takes the lock again and again until the window ends.
func (m *crowdMember) contend(ctx context.Context, acquire subject.Locker, task crowdTask, window crowdWindow) error {
	uncancelled := context.WithoutCancel(ctx)
	m.Waits = make([]time.Duration, 0, 4096)
	for {
		called := time.Now()
		held, err := acquire(ctx, task.Key)
		granted := time.Now()
		if !granted.Before(window.To) {
			m.Unfinished = window.To.Sub(called)
			if err == nil {
				release(uncancelled, held)
			}
			return nil // if there is an error, the end has cancelled the call
		}
		if err != nil {
			return err
		}
		if !granted.Before(window.From) {
			m.Waits = append(m.Waits, granted.Sub(called))
		}
		time.Sleep(task.Hold)
		release(uncancelled, held)
	}
}
