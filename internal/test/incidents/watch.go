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
	local      bool // a lock was handed off within a process
	lines      map[string]int
}

func newWatch() *watch {
	return &watch{changed: make(chan struct{}), waiting: make(map[string]int), operations: make(map[Event]int),
		lines: make(map[string]int)}
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

func (w *watch) handedOff() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local
}

// ended counts the operations until now.
func (w *watch) ended() map[Event]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.operations)
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
			w.local = w.local || op.Handoff == distlock.HandoffLocal
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
