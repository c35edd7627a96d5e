package belugarunner

import (
	"context"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

// openRuns counts the runs of a Runner, from their iteration to their release, and the workers of
// cancelled runs. A nil *openRuns counts nothing.
type openRuns struct {
	closing context.Context // ends with the first Shutdown
	close   context.CancelFunc

	mu   sync.Mutex
	open int
	idle chan struct{} // closed after Shutdown, when none is open
	once sync.Once
}

func newOpenRuns() *openRuns {
	o := &openRuns{idle: make(chan struct{})}
	o.closing, o.close = context.WithCancel(context.Background())
	return o
}

// errShutDown says that another instance can do the run.
func errShutDown(op string) error {
	return core.NewError(op, codes.ShuttingDown, "the Runner was shut down; nothing was done: ask another instance",
		distlock.ErrClosed)
}

// begin counts a run until the returned function is called. It fails after a Shutdown.
func (o *openRuns) begin() (ended func(), err error) {
	if o == nil {
		return func() {}, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing.Err() != nil {
		return nil, errShutDown("belugarunner.run")
	}
	o.open++
	return sync.OnceFunc(func() { o.add(-1) }), nil
}

func (o *openRuns) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open += n; o.open == 0 && o.closing.Err() != nil {
		o.once.Do(func() { close(o.idle) })
	}
}

// shutDown refuses further runs, and ends those that wait for their session.
func (o *openRuns) shutDown() {
	o.mu.Lock()
	o.close()
	o.mu.Unlock()
	o.add(0)
}

// wait calls acquire with a context that ends with a Shutdown. ⚑ The context of a granted lease does not.
func (o *openRuns) wait(ctx context.Context, acquire func(context.Context) (*distlock.Lease, error)) (*distlock.Lease, error) {
	if o == nil {
		return acquire(ctx)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.closing, cancel)()
	lease, err := acquire(waiting)
	if err != nil && ctx.Err() == nil && o.closing.Err() != nil {
		err = errShutDown("belugarunner.run")
	}
	return lease, err
}
