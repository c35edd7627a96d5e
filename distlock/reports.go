package distlock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/cleanup"
	"github.com/belugalock/belugalock/distlock/internal/loglimit"
)

// maxReports bounds the reports that wait for delivery. Reports of losses may exceed the bound.
const maxReports = 4096

// reports delivers the reports without a caller: scheduled renewals, losses and log lines. One
// goroutine calls the hooks in order, so a hook that blocks delays other reports and nothing else.
// The goroutine is alive while reports wait.
//
// Lock order: mu may be taken under any other mutex of a Locker.
type reports struct {
	locker *Locker

	mu      sync.Mutex
	waiting []func()
	dropped int
	done    chan struct{} // closed when the goroutine ends; nil without a goroutine
}

// add queues a report. A report that must arrive is never dropped.
func (r *reports) add(deliver func(), must bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= maxReports && !must {
		r.dropped++
		return
	}
	r.waiting = append(r.waiting, deliver)
	if r.done == nil {
		r.done = make(chan struct{})
		go func() {
			for deliver := r.next(); deliver != nil; deliver = r.next() {
				deliver()
			}
		}()
	}
}

// wait returns when no report waits, when ctx ends, or after [cleanup.CloseGrace].
func (r *reports) wait(ctx context.Context) {
	r.mu.Lock()
	done := r.done
	r.mu.Unlock()
	if done == nil {
		return
	}
	timer := time.NewTimer(cleanup.CloseGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// report queues the report of an operation that has ended. ⚑ An Observer that counts leases sees each lease
// begin before it ends, so the report waits for the End of the acquire.
func (le *Lease) report(ctx context.Context, op *Operation, must bool) {
	r := &le.grant.locker.reports
	observer := r.locker.opts.Observer.(*observers)
	if len(observer.each) == 0 {
		return
	}
	r.add(func() {
		le.begun.Wait()
		observer.End(observer.Start(ctx, op), op)
	}, must)
}

// next takes out the first report. It returns nil if none is left, and the goroutine has to end.
func (r *reports) next() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 {
		deliver := r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		return deliver
	}
	if n := r.dropped; n > 0 {
		r.dropped = 0
		return func() {
			r.locker.log(context.Background(), slog.LevelWarn,
				"distlock: reports were dropped because a hook of Observer or Logger blocked", "", "dropped", n)
		}
	}
	close(r.done)
	r.waiting, r.done = nil, nil
	return nil
}

// survive is deferred around a hook of the Observer. It logs a panic.
func (r *reports) survive(ctx context.Context, hook string, op *Operation) {
	if r == nil { // outside a Locker
		return
	}
	cause := recover()
	if cause == nil {
		return
	}
	text := fmt.Sprint(cause)
	if op.Key != "" {
		text = strings.ReplaceAll(text, op.Key, "(key)")
	}
	r.locker.log(ctx, slog.LevelError, "distlock: a hook of the Observer panicked; the operation went on", op.Key,
		"hook", hook, "operation", op.Name, "panic", text, "stack", string(debug.Stack()))
}

// log queues one line about the lock on key, which is empty if the line is about several locks. A Handler
// finds the span of ctx.
func (l *Locker) log(ctx context.Context, level slog.Level, text, key string, attrs ...any) {
	about := []any{"namespace", l.opts.Namespace}
	if key != "" && l.opts.LogKeys != KeyNone {
		about = append(about, "lock_key", l.opts.LogKeys.Show(key))
	}
	l.opts.Logger.Log(ctx, level, text, append(about, attrs...)...)
}

// logQueue is the Handler of Options.Logger as a Locker uses it: the lines go through the reports. The first
// line after some that the limit has left out has their number.
type logQueue struct {
	slog.Handler
	limit   *loglimit.Limit
	reports *reports
}

// Enabled leaves the level to the delivery: the application's Handler may block.
func (q *logQueue) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps the values of ctx, which may end before the delivery.
func (q *logQueue) Handle(ctx context.Context, line slog.Record) error {
	leftOut, passes := q.limit.Pass(line.Message, time.Now())
	if !passes {
		return nil
	}
	ctx, line = context.WithoutCancel(ctx), line.Clone()
	if leftOut > 0 {
		line.AddAttrs(slog.Int("left_out", leftOut))
	}
	write := func() {
		defer func() { _ = recover() }() // there is no other log
		if q.Handler.Enabled(ctx, line.Level) {
			_ = q.Handler.Handle(ctx, line)
		}
	}
	q.reports.add(write, false)
	return nil
}

func (q *logQueue) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logQueue{q.Handler.WithAttrs(attrs), q.limit, q.reports}
}

func (q *logQueue) WithGroup(name string) slog.Handler {
	return &logQueue{q.Handler.WithGroup(name), q.limit, q.reports}
}
