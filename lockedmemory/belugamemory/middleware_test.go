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

// locks wraps memories as a middleware.
func locks(t testing.TB, locker *distlock.Locker) memory.Middleware {
	return func(inner memory.Memory) memory.Memory {
		m, err := Wrap(inner, locker, SessionKey, nil)
		must(t, err)
		return m
	}
}

func recall() memory.Memory { return memory.NewRecall(&list{}) }

// A Turn is one tree of spans, including those of the application.
func TestNew_turnsUseTheTracer(t *testing.T) {
	spans := record()
	m := open(t, "mem://", map[string]any{"observer": observed(t).Observer})
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
			order := []memory.Middleware{locks(t, localLocker(t, nil)), hooks}
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

func TestWrap_optionsHaveTheirEffect(t *testing.T) {
	ctx := inSession(t, "s")
	t.Run("Busy", func(t *testing.T) {
		m, err := Wrap(recall(), localLocker(t, nil), lockedmemory.FixedKey("s"), &lockedmemory.Options{Busy: lockedmemory.Refuse})
		must(t, err)
		hold(t, ctx, m)
		err = m.Turn(ctx, func(context.Context) error { return errors.New("it ran") })
		mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
	})
	t.Run("Wait", func(t *testing.T) {
		m, err := Wrap(recall(), localLocker(t, nil), lockedmemory.FixedKey("s"), &lockedmemory.Options{Wait: 300 * time.Millisecond})
		must(t, err)
		hold(t, ctx, m)
		began := time.Now()
		err = m.Turn(ctx, func(context.Context) error { return errors.New("it ran") })
		mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
		if took := time.Since(began); took < 30*time.Millisecond || took > 3*time.Second {
			t.Errorf("it waited for %s", took)
		}
	})
	t.Run("key", func(t *testing.T) {
		locker := localLocker(t, nil)
		own := errors.New("no user")
		m, err := Wrap(recall(), locker, func(ctx context.Context) (string, error) {
			if id := core.GetSessionID(ctx); id != "" {
				return "user-" + id, nil
			}
			return "", own
		}, nil)
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

// A caller has to say how the memory keeps sessions apart: a session must not get the history of another.
func TestWrap_refusesWrongOptions(t *testing.T) {
	locker, key := localLocker(t, nil), lockedmemory.FixedKey("s")
	for name, test := range map[string]struct {
		inner  memory.Memory
		locker *distlock.Locker
		key    lockedmemory.KeyFunc
		busy   lockedmemory.BusyPolicy
		text   string
	}{
		"no memory":   {nil, locker, key, 0, "memory is nil"},
		"typed nil":   {(*memory.Recall)(nil), locker, key, 0, "memory is nil"},
		"no Locker":   {recall(), nil, key, 0, "Locker is nil"},
		"no KeyFunc":  {recall(), locker, nil, 0, "FixedKey"},
		"wrong value": {recall(), locker, key, 7, "Busy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Wrap(test.inner, test.locker, test.key, &lockedmemory.Options{Busy: test.busy})
			mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("no %q in: %v", test.text, err)
			}
		})
	}
}
