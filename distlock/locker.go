package distlock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/cleanup"
	"github.com/belugalock/belugalock/distlock/internal/loglimit"
	"github.com/belugalock/belugalock/distlock/internal/queue"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// Locker grants leases. It is safe for concurrent use. Close it before exit.
type Locker struct {
	driver driver.Driver
	caps   driver.Capabilities
	opts   Options

	listener     driver.Listener // nil if the backend does not notify
	asker        driver.Asker    // nil if the backend asks no holder
	queues       *queues
	alarm        alarm
	cleaner      *cleanup.Cleaner
	reports      reports
	closing      context.Context // ended by Close: waiting calls give up
	close        context.CancelFunc
	renewing     context.Context // ended when a closed Locker has no lease left
	stopRenewing context.CancelFunc
	idle         chan struct{} // closed when, after that, the last background work has ended

	mu     sync.Mutex
	active int               // operations and background work under way
	grants map[string]*grant // by owner
	hears  bool              // asks, see hearAsks

	closeDriver func() error // once
	warnNoWakes sync.Once
	warnOwnWait sync.Once
}

// New makes a Locker over d, for the backends' own New. Close closes d, unless it is a [driver.Shared]. New
// does no I/O, and fails with [ErrInvalidOption].
func New(d driver.Driver, opts *Options) (*Locker, error) {
	if d == nil {
		return nil, invalidOption("the driver is nil: use a backend's New, as redislock.New or memlock.New")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	closeDriver := d.Close
	if shared, ok := d.(driver.Shared); ok {
		d = shared.Driver
	}
	l := &Locker{
		driver: d,
		caps:   d.Capabilities(),
		opts:   o,
		idle:   make(chan struct{}),
	}
	l.reports.locker = l
	l.opts.Logger = slog.New(&logQueue{o.Logger.Handler(), new(loglimit.Limit), &l.reports})
	l.opts.Observer = &observers{Observers(o.Observer).(*observers).each, &l.reports}
	l.closing, l.close = context.WithCancel(context.Background())
	l.renewing, l.stopRenewing = context.WithCancel(context.Background())
	l.listener, _ = driver.As[driver.Listener](d)
	l.asker, _ = driver.As[driver.Asker](d)
	l.queues = queue.New[*acquisition, outcome, lastAnswer](l.caps.Queues)
	l.alarm.look = l.look
	l.grants = make(map[string]*grant)
	l.cleaner = cleanup.New(l.closing, d, l.workBegins, l.workEnds)
	l.closeDriver = sync.OnceValue(closeDriver)
	return l, nil
}

// Close ends all leases, ends waiting and new calls with [ErrClosed], and closes the driver. It
// waits for hooks at most a second, and for no function of a Do. If ctx ends first, its error
// returns, and the work goes on.
func (l *Locker) Close(ctx context.Context) error {
	ctx, cancel := lingering(ctx, 0) // it may be the context of a lease
	defer cancel()
	l.mu.Lock()
	if l.closing.Err() == nil {
		l.close()
		if l.active == 0 && len(l.grants) == 0 {
			close(l.idle)
		}
		l.stopRenewingLocked()
		for _, g := range l.grants {
			l.active++
			go func() {
				defer l.workEnds()
				g.mu.Lock()
				lease := g.holder // the last: a closed Locker hands nothing off
				g.mu.Unlock()
				_ = lease.release(ctx, errByClose) // the log and the Observer have the error
			}()
		}
	}
	l.mu.Unlock()

	closed := make(chan error, 1)
	go func() {
		<-l.idle
		closed <- l.closeDriver()
	}()
	select {
	case err := <-closed:
		l.reports.wait(ctx)
		if err != nil {
			return fmt.Errorf("distlock: close: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("distlock: close: not everything has ended yet, "+
			"leases that are not released expire with their TTL: %w", context.Cause(ctx))
	}
}

// enter counts an operation that a closed Locker refuses.
func (l *Locker) enter() bool { return l.closing.Err() == nil && l.workBegins() }

// workBegins counts work that a closing Locker still has to finish. It fails only when all work has ended:
// the driver may be gone then.
func (l *Locker) workBegins() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.Err() != nil && l.active == 0 {
		return false
	}
	l.active++
	return true
}

func (l *Locker) workEnds() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if l.closing.Err() != nil && l.active == 0 {
		close(l.idle)
	}
}

// adopt adds a grant to those of the Locker. It reports false if the Locker is closed.
func (l *Locker) adopt(g *grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.Err() != nil {
		return false
	}
	l.grants[g.owner] = g
	if l.opts.Interruptible && l.asker != nil && !l.hears {
		l.hears = true
		l.active++
		go l.hearAsks()
	}
	l.alarm.set(trust.Now().Add(watchEvery))
	return true
}

func (l *Locker) forget(g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.grants, g.owner)
	l.stopRenewingLocked()
}

// stopRenewingLocked ends the renewals under way of a closed Locker when its last grant has ended: no
// lease needs the answer, and Close waits for the calls.
func (l *Locker) stopRenewingLocked() {
	if l.closing.Err() != nil && len(l.grants) == 0 {
		l.stopRenewing()
	}
}
