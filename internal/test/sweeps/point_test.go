package sweeps

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

var errBroken = errors.New("the wire is broken")

// kind is a way in which an operation fails.
type kind struct {
	name    string
	err     error
	effect  bool // it takes effect, although it fails
	hangs   bool // until its own context ends
	cancels bool // the caller's context ends during the call
	onwards bool // and so do all that follow, until the call has returned
	dies    bool // and they have no effect, for the process is dead
}

// point counts the operations of the call, and spoils the n-th.
type point struct {
	kind   kind
	n      int
	cancel context.CancelFunc

	mu      sync.Mutex
	armed   bool
	count   int
	reached bool
	after   int // how many operations came after the n-th
}

// arm makes the point count and spoil; a second arm goes on where the first has stopped.
func (p *point) arm(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = on
}

// mayLose reports whether renewals fail for so long that a lease ends.
func (p *point) mayLose() bool { return p.kind.hangs || p.kind.onwards }

func (p *point) wasReached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached
}

// isDead reports whether an operation of a dead process was hit.
func (p *point) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind.dies && p.after > 0
}

// hit counts an operation, and tells whether it is to fail.
func (p *point) hit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed {
		return false
	}
	this := p.count
	p.count++
	if this != p.n && (!p.kind.onwards || this < p.n) {
		return false
	}
	p.reached, p.after = true, this-p.n
	if p.kind.cancels {
		time.AfterFunc(time.Millisecond, p.cancel)
	}
	return true
}

// through makes a call of a driver, or what the point makes of it.
func through[T any](ctx context.Context, p *point, call func(context.Context) (T, error)) (T, error) {
	if !p.hit() {
		return call(ctx)
	}
	var none T
	if p.kind.effect && !p.isDead() {
		if reply, err := call(ctx); err != nil {
			return reply, err
		}
	}
	if p.kind.hangs {
		return none, hang(ctx)
	}
	return none, p.kind.err
}

// clientsPatience is the timeout of a client of a session store. Some callers have no deadline, as
// the contract of the drivers says.
const clientsPatience = 10 * time.Second

func hang(ctx context.Context) error {
	timer := time.NewTimer(clientsPatience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errBroken
	}
}

// locks is a driver of a lock service behind a point. It embeds no driver: a method that it lacks
// does not compile.
type locks struct {
	inner driver.Driver
	point *point
}

var _ interface {
	driver.Listener
	driver.Asker
} = (*locks)(nil)

func (d *locks) Capabilities() driver.Capabilities { return d.inner.Capabilities() }

func (d *locks) Close() error { return d.inner.Close() }

func (d *locks) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	return through(ctx, d.point, func(ctx context.Context) (driver.AcquireReply, error) { return d.inner.Acquire(ctx, req) })
}

func (d *locks) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	return through(ctx, d.point, func(ctx context.Context) (driver.RaiseReply, error) { return d.inner.Raise(ctx, req) })
}

func (d *locks) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies, err := through(ctx, d.point, func(ctx context.Context) ([]driver.ExtendReply, error) { return d.inner.Extend(ctx, reqs), nil })
	if err != nil {
		replies = make([]driver.ExtendReply, len(reqs))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

func (d *locks) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	return through(ctx, d.point, func(ctx context.Context) (driver.ReleaseReply, error) { return d.inner.Release(ctx, req) })
}

func (d *locks) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	return through(ctx, d.point, func(ctx context.Context) (driver.State, error) { return d.inner.Inspect(ctx, name) })
}

func (d *locks) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	return through(ctx, d.point, func(ctx context.Context) (driver.AskReply, error) { return d.inner.(driver.Asker).Ask(ctx, req) })
}

func (d *locks) NotifyAsks(context.Context, string, func(owner string)) (stop func(), err error) {
	return nil, errors.ErrUnsupported
}

func (d *locks) List(ctx context.Context, req driver.ListRequest) (driver.ListReply, error) {
	lister, ok := d.inner.(driver.Lister)
	if !ok {
		return driver.ListReply{}, errors.ErrUnsupported
	}
	return through(ctx, d.point, func(ctx context.Context) (driver.ListReply, error) { return lister.List(ctx, req) })
}

func (d *locks) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	queue := d.inner.(driver.Listener)
	if !d.point.hit() {
		return queue.Listen(ctx, name, owner)
	}
	if d.point.kind.effect && !d.point.isDead() {
		if _, stop, err := queue.Listen(ctx, name, owner); err == nil {
			stop() // a caller with an error will not
		}
	}
	if d.point.kind.hangs {
		return nil, nil, hang(ctx)
	}
	return nil, nil, d.point.kind.err
}

// sessions is a driver of a session store behind a point.
type sessions struct {
	storedriver.Driver
	point *point
}

func (d *sessions) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Verdict, error) { return d.Driver.Append(ctx, a) })
}

func (d *sessions) Replace(ctx context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Verdict, error) { return d.Driver.Replace(ctx, r) })
}

func (d *sessions) Fork(ctx context.Context, f storedriver.Fork) (storedriver.Verdict, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Verdict, error) { return d.Driver.Fork(ctx, f) })
}

func (d *sessions) Close(ctx context.Context, c storedriver.CloseRequest) (storedriver.Verdict, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Verdict, error) { return d.Driver.Close(ctx, c) })
}

func (d *sessions) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Verdict, error) { return d.Driver.Clear(ctx, c) })
}

func (d *sessions) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Page, error) { return d.Driver.Read(ctx, r) })
}

func (d *sessions) Sessions(ctx context.Context, after string) (names []string, next string, err error) {
	names, err = through(ctx, d.point, func(ctx context.Context) (names []string, err error) {
		names, next, err = d.Driver.Sessions(ctx, after)
		return names, err
	})
	return names, next, err
}

func (d *sessions) Put(ctx context.Context, p storedriver.Put) (storedriver.Verdict, error) {
	return through(ctx, d.point, func(ctx context.Context) (storedriver.Verdict, error) { return d.Driver.Put(ctx, p) })
}

func (d *sessions) Pending(ctx context.Context, a storedriver.Access) (v storedriver.Verdict, items []storedriver.Item, err error) {
	v, err = through(ctx, d.point, func(ctx context.Context) (v storedriver.Verdict, err error) {
		v, items, err = d.Driver.Pending(ctx, a)
		return v, err
	})
	return v, items, err
}

func (d *sessions) Inboxes(ctx context.Context, after string) (names []string, next string, err error) {
	names, err = through(ctx, d.point, func(ctx context.Context) (names []string, err error) {
		names, next, err = d.Driver.Inboxes(ctx, after)
		return names, err
	})
	return names, next, err
}

func (d *sessions) Ping(ctx context.Context) ([]string, error) {
	return through(ctx, d.point, func(ctx context.Context) ([]string, error) { return d.Driver.Ping(ctx) })
}

// kinds are those in which an operation of a driver fails.
func kinds() (all []kind) {
	for _, effect := range []bool{false, true} {
		when := "before"
		if effect {
			when = "after"
		}
		for name, err := range map[string]error{
			"noAnswer": errBroken, "temporary": fmt.Errorf("%w: it starts", driver.ErrTemporary),
			"refused": fmt.Errorf("%w: no right", driver.ErrRefused),
		} {
			if effect && err != errBroken { // an earlier copy had it
				err = fmt.Errorf("%w: %w", driver.ErrReplayed, err)
			}
			for _, onwards := range []bool{false, true} {
				all = append(all, kind{name: fmt.Sprintf("%s/%s/onwards=%t", when, name, onwards), err: err, effect: effect, onwards: onwards})
			}
		}
		all = append(all,
			kind{name: when + "/hangs", hangs: true, effect: effect},
			kind{name: when + "/hangs/onwards", hangs: true, effect: effect, onwards: true},
			kind{name: when + "/hangsUntilTheCallerHasGone", hangs: true, effect: effect, cancels: true})
	}
	return all
}
