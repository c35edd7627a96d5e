package drivertest

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Op names a method of driver.Driver or of an optional interface.
type Op string

// The methods that can be made to fail.
const (
	Acquire Op = "acquire"
	Raise   Op = "raise"
	Extend  Op = "extend"
	Release Op = "release"
	Inspect Op = "inspect"
	Listen  Op = "listen" // of driver.Listener
	List    Op = "list"   // of driver.Lister
	Break   Op = "break"  // of driver.Breaker
	Ask     Op = "ask"    // of driver.Asker
	// NotifyAsks is of driver.Asker. A fault has no delays.
	NotifyAsks Op = "notify asks"
)

// Call is one call of a driver's method.
type Call struct {
	Op Op
	N  int // how many calls of the same method came before
}

// Fault changes one call. The zero Fault changes nothing.
type Fault struct {
	// Before is returned, and the backend never receives the call. Wrap the kind of the failure,
	// such as driver.ErrNotDone; without a kind the outcome is unknown.
	Before error
	// After is returned after the backend has carried out the call, as if the answer was lost. Use
	// an error without a kind, or one that wraps driver.ErrReplayed.
	After error
	// HoldBefore and HoldAfter, if not nil, delay the call or its answer until they are closed. When
	// the call's context ends, its caller leaves, and the call goes on as a late packet does.
	HoldBefore, HoldAfter <-chan struct{}
}

// Faults is a driver that fails as a test wants. It is safe for concurrent use.
type Faults struct {
	driver.Driver

	mu     sync.Mutex
	inject func(Call) Fault
	calls  map[Op]int
	held   sync.WaitGroup // calls with a delay
}

// NewFaults wraps d. Without an Inject it is transparent.
func NewFaults(d driver.Driver) *Faults {
	return &Faults{Driver: d, calls: make(map[Op]int)}
}

// Inject calls fault for the Fault of every further call; nil ends that. Calls may be concurrent.
func (f *Faults) Inject(fault func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inject = fault
}

// Calls is how often the method was called.
func (f *Faults) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *Faults) begin(op Op) Fault {
	f.mu.Lock()
	call := Call{Op: op, N: f.calls[op]}
	f.calls[op]++
	inject := f.inject
	f.mu.Unlock()
	if inject == nil {
		return Fault{}
	}
	return inject(call)
}

func wait(until <-chan struct{}) {
	if until != nil {
		<-until
	}
}

// Acquire implements driver.Driver.
func (f *Faults) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	return faulty(ctx, f, Acquire, func(ctx context.Context) (driver.AcquireReply, error) {
		return f.Driver.Acquire(ctx, req)
	})
}

// Raise implements driver.Driver.
func (f *Faults) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	return faulty(ctx, f, Raise, func(ctx context.Context) (driver.RaiseReply, error) { return f.Driver.Raise(ctx, req) })
}

// Release implements driver.Driver.
func (f *Faults) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	return faulty(ctx, f, Release, func(ctx context.Context) (driver.ReleaseReply, error) {
		return f.Driver.Release(ctx, req)
	})
}

// Inspect implements driver.Driver.
func (f *Faults) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	return faulty(ctx, f, Inspect, func(ctx context.Context) (driver.State, error) { return f.Driver.Inspect(ctx, name) })
}

// Extend implements driver.Driver. A fault concerns all of its requests.
func (f *Faults) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies, err := faulty(ctx, f, Extend, func(ctx context.Context) ([]driver.ExtendReply, error) {
		return f.Driver.Extend(ctx, reqs), nil
	})
	if err != nil {
		replies = make([]driver.ExtendReply, len(reqs))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

// Unwrap shows the optional interfaces of the wrapped driver that Faults passes on without a fault.
func (f *Faults) Unwrap() driver.Driver { return f.Driver }

// Listen implements driver.Listener, if the wrapped driver does. HoldAfter has no meaning.
func (f *Faults) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	listener, ok := driver.As[driver.Listener](f.Driver)
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	fault := f.begin(Listen)
	if fault.HoldBefore != nil {
		select {
		case <-fault.HoldBefore:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if err := cmp.Or(fault.Before, fault.After); err != nil {
		return nil, nil, err
	}
	return listener.Listen(ctx, name, owner)
}

// List implements driver.Lister, if the wrapped driver does.
func (f *Faults) List(ctx context.Context, req driver.ListRequest) (driver.ListReply, error) {
	lister, ok := driver.As[driver.Lister](f.Driver)
	if !ok {
		return driver.ListReply{}, errors.ErrUnsupported
	}
	return faulty(ctx, f, List, func(ctx context.Context) (driver.ListReply, error) { return lister.List(ctx, req) })
}

// Break implements driver.Breaker, if the wrapped driver does.
func (f *Faults) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	breaker, ok := driver.As[driver.Breaker](f.Driver)
	if !ok {
		return false, errors.ErrUnsupported
	}
	return faulty(ctx, f, Break, func(ctx context.Context) (bool, error) { return breaker.Break(ctx, name, fence) })
}

// Ask implements driver.Asker, if the wrapped driver does.
func (f *Faults) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	asker := asker(f.Driver)
	if asker == nil {
		return driver.AskReply{}, errors.ErrUnsupported
	}
	return faulty(ctx, f, Ask, func(ctx context.Context) (driver.AskReply, error) { return asker.Ask(ctx, req) })
}

// NotifyAsks implements driver.Asker, if the wrapped driver does.
func (f *Faults) NotifyAsks(ctx context.Context, namespace string, asked func(owner string)) (func(), error) {
	asker := asker(f.Driver)
	if asker == nil {
		return nil, errors.ErrUnsupported
	}
	if fault := f.begin(NotifyAsks); fault.Before != nil {
		return nil, fault.Before
	}
	return asker.NotifyAsks(ctx, namespace, asked)
}

func faulty[T any](ctx context.Context, f *Faults, op Op, call func(context.Context) (T, error)) (T, error) {
	fault := f.begin(op)
	if fault.HoldBefore == nil && fault.HoldAfter == nil {
		return fail(ctx, fault, call)
	}
	type answer struct {
		reply T
		err   error
	}
	answers := make(chan answer, 1)
	f.held.Go(func() {
		wait(fault.HoldBefore)
		reply, err := fail(context.WithoutCancel(ctx), fault, call)
		wait(fault.HoldAfter)
		answers <- answer{reply, err}
	})
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func fail[T any](ctx context.Context, fault Fault, call func(context.Context) (T, error)) (none T, err error) {
	if fault.Before != nil {
		return none, fault.Before
	}
	reply, err := call(ctx)
	if err == nil && fault.After != nil {
		return none, fault.After
	}
	return reply, err
}

// Close waits for the calls with a delay.
func (f *Faults) Close() error {
	f.held.Wait()
	return f.Driver.Close()
}
