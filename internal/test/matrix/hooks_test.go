package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// hook is an Observer and a slog.Handler that calls back at each report.
type hook struct {
	observes func(*distlock.Operation)
	logs     func()
}

func (h *hook) Start(ctx context.Context, op *distlock.Operation) context.Context {
	h.observes(op)
	return ctx
}

func (h *hook) End(_ context.Context, op *distlock.Operation) { h.observes(op) }

func (h *hook) Enabled(context.Context, slog.Level) bool { return true }

func (h *hook) Handle(context.Context, slog.Record) error {
	h.logs()
	return nil
}

func (h *hook) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *hook) WithGroup(string) slog.Handler      { return h }

// An Observer or a slog.Handler that blocks for longer than a TTL costs no lease. The panic of an
// Observer causes the log line at which the Handler blocks.
func hookBlocks(t *testing.T, s *service) {
	for _, blocks := range []string{"observer", "handler"} {
		unlessStalled(t, "hookBlocks-"+blocks, func(t testing.TB, key string) {
			const ttl, leases = time.Second, 20
			blocked, over := make(chan struct{}), make(chan struct{})
			block := sync.OnceFunc(func() {
				close(blocked)
				<-over
			})
			h := &hook{func(op *distlock.Operation) {
				switch {
				case !op.Scheduled:
				case blocks == "handler":
					panic("the observer is broken")
				default:
					block()
				}
			}, func() {
				if blocks == "handler" {
					block()
				}
			}}
			l := locker(t, s.client(t), distlock.Options{TTL: ttl, Observer: h, Logger: slog.New(h)})
			unblock := sync.OnceFunc(func() { close(over) })
			t.Cleanup(unblock)
			var held []*distlock.Lease
			for n := range leases {
				held = append(held, mustAcquire(t, l, fmt.Sprint(key, "-", n)))
			}
			servers.Await(t, 5*time.Second, "the hook blocks", func() bool {
				select {
				case <-blocked:
					return true
				default:
					return false
				}
			})
			lost := func(lease *distlock.Lease) bool { return lease.Err() != nil }
			if servers.Within(5*ttl/2, func() bool { return slices.ContainsFunc(held, lost) }) {
				t.Errorf("the hook blocks, and a lease is lost")
			}
			unblock()
			for _, lease := range held {
				mustRelease(t, lease)
			}
		})
	}
}

// An Observer that panics at every call changes no result. A log line tells of it.
func hookPanics(t *testing.T, s *service) {
	unlessStalled(t, "hookPanics", func(t testing.TB, key string) {
		const ttl = time.Second
		var panics, lines atomic.Int32
		h := &hook{func(*distlock.Operation) {
			panics.Add(1)
			panic("the observer is broken")
		}, func() { lines.Add(1) }}
		l := locker(t, s.client(t), distlock.Options{TTL: ttl, Observer: h, Logger: slog.New(h)})
		defer func() {
			if p := recover(); p != nil {
				t.Fatalf("the caller has got the panic of the hook: %v", p)
			}
		}()
		lease := mustAcquire(t, l, key)
		keeps(t, lease, 5*ttl/2)
		mustRelease(t, lease)
		s.gone(t, key)
		if err := l.Close(t.Context()); err != nil { // waits for the log
			t.Error(err)
		}
		if panics.Load() < 6 || lines.Load() == 0 { // of an acquisition, a renewal and a release
			t.Errorf("%d panics, %d log lines", panics.Load(), lines.Load())
		}
	})
}
