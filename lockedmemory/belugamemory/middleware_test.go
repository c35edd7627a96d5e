package belugamemory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

// recorder has all spans of the process, because Beluga reads the global provider once.
var recorder = sync.OnceValue(func() *tracetest.SpanRecorder {
	r := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r)))
	return r
})

// record collects the spans that end later, by name.
func record() func() map[string]sdktrace.ReadOnlySpan {
	before := len(recorder().Ended())
	return func() map[string]sdktrace.ReadOnlySpan {
		spans := make(map[string]sdktrace.ReadOnlySpan)
		for _, span := range recorder().Ended()[before:] {
			spans[span.Name()] = span
		}
		return spans
	}
}

func observed(t testing.TB) *distlock.Options {
	t.Helper()
	spans, err := tracing.New()
	must(t, err)
	return &distlock.Options{Observer: spans}
}

func middleware(t testing.TB, locker *distlock.Locker, opts ...Option) memory.Middleware {
	t.Helper()
	m, err := Middleware(locker, append(opts, WithInnerSeparatesSessions())...)
	must(t, err)
	return m
}

func recall() memory.Memory { return memory.NewRecall(&list{}) }

func TestMiddleware_tracingIsOutsideOrInside(t *testing.T) {
	for name, test := range map[string]struct {
		tracingFirst  bool
		parent, child string
	}{
		"outside": {true, "memory.save", "lockedmemory.save"},
		"inside":  {false, "lockedmemory.save", "memory.save"},
	} {
		t.Run(name, func(t *testing.T) {
			spans := record()
			lock := middleware(t, localLocker(t, observed(t)))
			order := []memory.Middleware{lock, memory.WithTracing()}
			if test.tracingFirst {
				order = []memory.Middleware{memory.WithTracing(), lock}
			}
			save(t, inSession(t, "s"), memory.ApplyMiddleware(recall(), order...), "1")
			parent, child := spans()[test.parent], spans()[test.child]
			if parent == nil || child == nil {
				t.Fatalf("spans: %v", spans())
			}
			if parent.SpanContext().SpanID() != child.Parent().SpanID() {
				t.Errorf("%s is no child of %s", test.child, test.parent)
			}
		})
	}
}

// A Turn is one tree of spans, including those of the application.
func TestNew_turnsUseTheGlobalTracer(t *testing.T) {
	spans := record()
	m := open(t, "mem://", nil)
	err := m.Turn(inSession(t, "S3CRET"), func(ctx context.Context) error {
		_, span := otel.Tracer("app").Start(ctx, "model")
		span.End()
		return m.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a"))
	})
	must(t, err)
	turn := spans()["lockedmemory.turn"]
	for _, name := range []string{"model", "lockedmemory.save", "distlock.acquire"} {
		span := spans()[name]
		if turn == nil || span == nil || span.SpanContext().TraceID() != turn.SpanContext().TraceID() {
			t.Errorf("%s is not in the turn's trace: %v", name, spans())
		}
	}
	for name, span := range spans() {
		for _, a := range span.Attributes() {
			if strings.Contains(a.Value.String(), "S3CRET") {
				t.Errorf("%s: %s shows the session", name, a.Key)
			}
		}
	}
}

func TestMiddleware_orderOfHooksAndLock(t *testing.T) {
	for name, hooksFirst := range map[string]bool{"outside": true, "inside": false} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			hooks := memory.WithHooks(memory.Hooks{
				BeforeSave: func(ctx context.Context, _, _ schema.Message) error {
					calls++
					if lease, ok := lockedmemory.Lease(ctx); ok == hooksFirst || ok && lease.Fence() == 0 {
						t.Errorf("lease %v, %t", lease, ok)
					}
					return nil
				},
				AfterSave: func(ctx context.Context, _, _ schema.Message, _ error) {
					calls++
					if _, ok := lockedmemory.Lease(ctx); ok == hooksFirst {
						t.Errorf("afterwards, there is a lease: %t", ok)
					}
				},
			})
			order := []memory.Middleware{middleware(t, localLocker(t, nil)), hooks}
			if hooksFirst {
				order = []memory.Middleware{hooks, order[0]}
			}
			save(t, inSession(t, "s"), memory.ApplyMiddleware(recall(), order...), "1")
			if calls != 2 {
				t.Errorf("%d calls", calls)
			}
		})
	}
}

// An outer hook sees the error with its code. An inner hook sees the error of the inner memory.
func TestMiddleware_hooksSeeTheErrorsWithTheirCodes(t *testing.T) {
	var outside error
	lock := middleware(t, localLocker(t, nil))
	hooks := memory.WithHooks(memory.Hooks{OnError: func(_ context.Context, err error) error {
		outside = err
		return err
	}})
	m := memory.ApplyMiddleware(recall(), hooks, lock)
	if err := m.Save(t.Context(), schema.NewHumanMessage("q"), schema.NewAIMessage("a")); err == nil {
		t.Error("no session, and no error")
	}
	mustHaveCode(t, outside, core.ErrInvalidInput, distlock.ErrInvalidKey)
}

func TestMiddleware_nilMemory_failsWithReason(t *testing.T) {
	m := memory.ApplyMiddleware(nil, middleware(t, localLocker(t, nil)))
	for operation, err := range everyOperation(inSession(t, "s"), m) {
		mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
		if err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

func TestTurn_needsTheLockToComeFirst(t *testing.T) {
	lock := middleware(t, localLocker(t, nil))
	ctx := inSession(t, "s")
	first := memory.ApplyMiddleware(recall(), lock, memory.WithTracing())
	err := Turn(ctx, first, func(ctx context.Context) error {
		save(t, ctx, first, "1")
		return nil
	})
	if got := history(t, ctx, first); err != nil || got != "q 1|a 1" {
		t.Errorf("%v, then %s", err, got)
	}
	for name, m := range map[string]memory.Memory{
		"hidden": memory.ApplyMiddleware(recall(), memory.WithTracing(), lock),
		"absent": recall(),
		"nil":    nil,
	} {
		err := Turn(ctx, m, func(context.Context) error { t.Errorf("%s: the function ran", name); return nil })
		mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
		if err == nil || core.IsRetryable(err) || !strings.Contains(err.Error(), "first") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrap_optionsHaveTheirEffect(t *testing.T) {
	ctx := inSession(t, "s")
	t.Run("WithBusy", func(t *testing.T) {
		m, err := Wrap(recall(), localLocker(t, nil), WithBusy(lockedmemory.Refuse), WithSessionID("s"))
		must(t, err)
		hold(t, ctx, m)
		err = m.Turn(ctx, func(context.Context) error { return errors.New("it ran") })
		mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
	})
	t.Run("WithWait", func(t *testing.T) {
		m, err := Wrap(recall(), localLocker(t, nil), WithWait(300*time.Millisecond), WithSessionID("s"))
		must(t, err)
		hold(t, ctx, m)
		began := time.Now()
		err = m.Turn(ctx, func(context.Context) error { return errors.New("it ran") })
		mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
		if took := time.Since(began); took < 30*time.Millisecond || took > 3*time.Second {
			t.Errorf("it waited for %s", took)
		}
	})
	t.Run("WithKey", func(t *testing.T) {
		locker := localLocker(t, nil)
		own := errors.New("no user")
		m, err := Wrap(recall(), locker, WithInnerSeparatesSessions(), WithKey(func(ctx context.Context) (string, error) {
			if id := core.GetSessionID(ctx); id != "" {
				return "user-" + id, nil
			}
			return "", own
		}))
		must(t, err)
		err = m.Turn(ctx, func(ctx context.Context) error {
			if _, ok := locker.FromContext(ctx, "user-s"); !ok {
				t.Error("the lock has another key")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		err = m.Clear(t.Context())
		mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
		if !errors.Is(err, own) {
			t.Error("the KeyFunc's own error is not there:", err)
		}
	})
}

func TestWrap_refusesWrongOptions(t *testing.T) {
	locker, apart := localLocker(t, nil), WithInnerSeparatesSessions()
	for name, test := range map[string]struct {
		opts []Option
		text string
	}{
		"nil":         {[]Option{nil}, "nil"},
		"nil KeyFunc": {[]Option{WithKey(nil)}, "WithKey"},
		"no session":  {[]Option{WithSessionID("")}, "WithSessionID"},
		"two keys":    {[]Option{WithKey(SessionKey), WithSessionID("s")}, "WithSessionID"},
		"no wait":     {[]Option{WithWait(0)}, "WithWait"},
		"no policy":   {[]Option{WithBusy(7)}, "WithBusy"},
	} {
		t.Run(name, func(t *testing.T) {
			for constructor, construct := range map[string]func() error{
				"Wrap":       func() error { _, err := Wrap(recall(), locker, append(test.opts, apart)...); return err },
				"Middleware": func() error { _, err := Middleware(locker, append(test.opts, apart)...); return err },
			} {
				err := construct()
				mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
				if err == nil || !strings.Contains(err.Error(), test.text) {
					t.Errorf("%s: %v", constructor, err)
				}
			}
		})
	}
	_, err := Wrap(nil, locker, apart)
	mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	_, err = Wrap(recall(), nil, apart)
	mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	_, err = Middleware(nil, apart)
	mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
}
