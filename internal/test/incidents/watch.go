package incidents

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// watch knows what the instances have reported so far.
type watch struct {
	mu         sync.Mutex
	changed    chan struct{}  // closed and replaced at each change
	waiting    map[string]int // calls of Acquire that have not ended, by key
	operations map[Event]int
	handoffs   map[distlock.Handoff]int
	lines      map[string]int
}

func newWatch() *watch {
	return &watch{changed: make(chan struct{}), waiting: make(map[string]int), operations: make(map[Event]int),
		handoffs: make(map[distlock.Handoff]int), lines: make(map[string]int)}
}

func (w *watch) change(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
	close(w.changed)
	w.changed = make(chan struct{})
}

// patience bounds how long the scene waits for a state. Only a scene that fails waits for so long.
const patience = 30 * time.Second

// await returns when the reports are as is says.
func (w *watch) await(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		done, changed := is(), w.changed
		w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("incidents: not seen: %s: %w", what, ctx.Err())
		}
	}
}

// awaitLine returns when a line with the message is logged.
func (w *watch) awaitLine(ctx context.Context, message string) error {
	return w.await(ctx, "the log line "+message, func() bool { return w.lines[message] > 0 })
}

// renewals counts the scheduled renewals of a key that failed, or that did not.
func (w *watch) renewals(key string, failed bool) (n int) {
	for e, count := range w.operations {
		if e.Key == key && e.Scheduled && failed == (e.Outcome != distlock.OutcomeDone) {
			n += count
		}
	}
	return n
}

// handedOff reports whether a lock was acquired by such a handoff.
func (w *watch) handedOff(h distlock.Handoff) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handoffs[h] > 0
}

func (w *watch) counts() (handoffs map[distlock.Handoff]int, operations map[Event]int, lines map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.handoffs), maps.Clone(w.operations), maps.Clone(w.lines)
}

// witness is the Observer of one instance.
type witness struct {
	*watch
	instance string
}

func (w *witness) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if op.Name == distlock.OpAcquire {
		w.change(func() { w.waiting[op.Key]++ })
	}
	return ctx
}

func (w *witness) End(_ context.Context, op *distlock.Operation) {
	w.change(func() {
		w.operations[Event{w.instance, op.Name, op.Key, op.Outcome, op.Scheduled}]++
		if op.Name == distlock.OpAcquire {
			w.waiting[op.Key]--
			if op.Outcome == distlock.OutcomeAcquired {
				w.handoffs[op.Handoff]++
			}
		}
	})
}

// panics is an Observer with a bug.
type panics struct{}

func (panics) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if op.Key == Panics && op.Name == distlock.OpAcquire {
		panic("the Observer of the scene has a bug")
	}
	return ctx
}

func (panics) End(context.Context, *distlock.Operation) {}

// lines is a slog.Handler that counts.
type lines struct {
	slog.Handler
	*watch
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(ctx context.Context, line slog.Record) error {
	l.change(func() { l.watch.lines[line.Message]++ })
	if !l.Handler.Enabled(ctx, line.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, line)
}

func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lines{l.Handler.WithAttrs(attrs), l.watch}
}

func (l *lines) WithGroup(name string) slog.Handler {
	return &lines{l.Handler.WithGroup(name), l.watch}
}
