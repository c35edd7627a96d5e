package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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

func recall() memory.Memory { return memory.NewRecall(&list{}) }

// A Turn is one tree of spans, including those of the application, and none shows the session.
func TestNew_turnsUseTheTracer(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	observer, err := tracing.New()
	must(t, err)
	m := open(t, "mem://", map[string]any{"observer": observer})
	must(t, m.Turn(inSession(t, "S3CRET"), func(ctx context.Context) error {
		_, span := otel.Tracer("app").Start(ctx, "model")
		span.End()
		return m.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a"))
	}))
	traces, names := map[string]bool{}, map[string]bool{}
	for _, span := range spans.Ended() {
		names[span.Name()], traces[span.SpanContext().TraceID().String()] = true, true
		if strings.Contains(fmt.Sprint(span.Attributes()), "S3CRET") {
			t.Errorf("%s shows the session: %v", span.Name(), span.Attributes())
		}
	}
	if len(traces) != 1 || !names["lockedmemory.turn"] || !names["model"] || !names["lockedmemory.save"] || !names["distlock.acquire"] {
		t.Errorf("%d traces with the spans %v", len(traces), names)
	}
}

func TestMiddleware_orderOfHooksAndLock(t *testing.T) {
	for _, hooksFirst := range []bool{true, false} {
		calls := 0
		locked := func(ctx context.Context) {
			if calls++; hooksFirst == second(lockedmemory.Lease(ctx)) {
				t.Errorf("with hooks outside: %t, call %d has a lease: %t", hooksFirst, calls, !hooksFirst)
			}
		}
		hooks := memory.WithHooks(memory.Hooks{
			BeforeSave: func(ctx context.Context, _, _ schema.Message) error { locked(ctx); return nil },
			AfterSave:  func(ctx context.Context, _, _ schema.Message, _ error) { locked(ctx) },
		})
		order := []memory.Middleware{func(inner memory.Memory) memory.Memory { return wrap(t, inner, SessionKey, nil) }, hooks}
		if hooksFirst {
			slices.Reverse(order)
		}
		save(t, inSession(t, "s"), memory.ApplyMiddleware(recall(), order...), "1")
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	}
}

func TestWrap_optionsHaveTheirEffect(t *testing.T) {
	ctx, own := inSession(t, "s"), errors.New("no user")
	m := wrap(t, recall(), func(ctx context.Context) (string, error) {
		if id := core.GetSessionID(ctx); id != "" {
			return "user-" + id, nil
		}
		return "", own
	}, &lockedmemory.Options{Busy: lockedmemory.Refuse})
	must(t, m.Turn(ctx, func(ctx context.Context) error {
		if _, ok := m.Locker().FromContext(ctx, "user-s"); !ok {
			t.Error("the lock has another key")
		}
		return nil
	}))
	err := m.Clear(t.Context())
	mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
	if !errors.Is(err, own) {
		t.Error("the KeyFunc's own error is not there:", err)
	}
	hold(t, ctx, m)
	err = m.Turn(ctx, func(context.Context) error { return errors.New("it ran") })
	mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
}

// A caller has to say how the memory keeps sessions apart: a session must not get the history of another.
func TestWrap_refusesWrongOptions(t *testing.T) {
	locker, key := localLocker(t, nil), lockedmemory.FixedKey("s")
	for text, test := range map[string]struct {
		inner  memory.Memory
		locker *distlock.Locker
		key    lockedmemory.KeyFunc
		busy   lockedmemory.BusyPolicy
	}{
		"memory is nil:": {nil, locker, key, 0},
		"memory is nil":  {(*memory.Recall)(nil), locker, key, 0},
		"Locker is nil":  {recall(), nil, key, 0},
		"FixedKey":       {recall(), locker, nil, 0},
		"Busy":           {recall(), locker, key, 7},
	} {
		_, err := Wrap(test.inner, test.locker, test.key, &lockedmemory.Options{Busy: test.busy})
		mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
		contains(t, fmt.Sprint(err), text)
	}
}
