package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// DoInstantly is [Locker.Do] with a shorter way for work that the lock service can do itself, in the very step in which it
// finds the lock free: a store that keeps its data beside the lock writes in one round trip, where acquiring, writing and
// releasing take three.
//
// If nobody in this process holds the lock or waits for it, instant is called first: without a lease, under ctx and the
// Locker's wait, while others of the process wait behind it. It reports whether it has done the work, which it must do only
// if at that moment nobody holds the lock and nobody stands in the service's line. If it has not, or if somebody in the
// process is first, DoInstantly goes on as Do does, with fn.
// An error of instant ends the call and is returned as it is. After the end of the wait, the error
// is [ErrUnavailable], unless that of instant is [ErrOutcomeUnknown] or [ErrRefused]. If the Locker
// was closed, the error is [ErrClosed], joined to an ErrOutcomeUnknown of instant. These match no
// error of a context.
//
// A ctx that carries the lease joins it, as with Do.
func (l *Locker) DoInstantly(ctx context.Context, key string, instant func(ctx context.Context) (done bool, err error),
	fn func(ctx context.Context) error) error {
	if _, ok := l.FromContext(ctx, key); ok {
		return l.Do(ctx, key, fn)
	}
	lease, err := l.acquire(ctx, key, l.opts.TTL, l.patience(ctx), instant)
	if lease == nil || err != nil {
		return err
	}
	return lease.do(ctx, fn)
}

// instantly runs instant in the place of the process's contender, if nobody in the process is before it. What it has not done is
// for the acquisition to go on with, from that place.
func (a *acquisition) instantly(instant func(ctx context.Context) (bool, error)) (done bool, err error) {
	if a.ctx.Err() != nil || !a.locker.lines.joinAlone(a) {
		return false, nil
	}
	ctx := &lazy{Context: a.ctx, until: a.until}
	goesOn := false
	defer func() {
		ctx.end()
		a.endUntil()
		if !goesOn {
			a.locker.lines.yield(a)
			a.line = nil
		}
	}()
	done, err = instant(ctx)
	if err != nil && a.ctx.Err() == nil && ctx.Err() != nil {
		// The caller has cancelled nothing, so the error is not to look as if.
		unknown := errors.Is(err, ErrOutcomeUnknown)
		switch closed := a.locker.closing.Err() != nil; {
		case closed && unknown:
			err = fmt.Errorf("%w: %w", ErrClosed, &waited{err})
		case closed:
			err = fmt.Errorf("%w: %v", ErrClosed, err)
		case unknown, errors.Is(err, ErrRefused):
			err = fmt.Errorf("distlock: do instantly: %v: %w", context.Cause(ctx), &waited{err})
		default:
			err = unavailable("do instantly", fmt.Errorf("%v: %w", context.Cause(ctx), &waited{err}))
		}
	}
	goesOn = !done && err == nil && a.attempts == 0
	a.at = time.Now() // the first answer to a request for the lock counts from here
	return done, err
}

// waited is an error that came when the wait was over. It says what instant has to say, as that the outcome is not known, but not that a
// context has ended.
type waited struct{ err error }

func (e *waited) Error() string { return e.err.Error() }

func (e *waited) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e *waited) As(target any) bool { return errors.As(e.err, target) }

// joinAlone makes a the contender if nobody in the process holds the lock or waits for it.
func (q *lines) joinAlone(a *acquisition) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byKey[a.op.Key] != nil {
		return false
	}
	a.line = q.of(a.op.Key)
	a.line.arrivals++
	a.arrival = a.line.arrivals
	a.line.contender = a
	return true
}

// lazy is a context that ends as the one does that until makes, when somebody first asks for its Done: a call that is over in no
// time needs no timer.
type lazy struct {
	context.Context
	until func() context.Context
	once  sync.Once
	made  atomic.Pointer[context.Context]
}

// end is called when until must not be any more.
func (l *lazy) end() {
	l.once.Do(func() {
		ended, cancel := context.WithCancel(l.Context)
		cancel()
		l.made.Store(&ended)
	})
}

func (l *lazy) Done() <-chan struct{} {
	l.once.Do(func() {
		made := l.until()
		l.made.Store(&made)
	})
	return (*l.made.Load()).Done()
}

// now is the context that there is.
func (l *lazy) now() context.Context {
	if made := l.made.Load(); made != nil {
		return *made
	}
	return l.Context
}

func (l *lazy) Err() error { return l.now().Err() }

// Value also shows what the cause is found by.
func (l *lazy) Value(key any) any { return l.now().Value(key) }
