package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const session = "secret-session-id"

var errBroken = errors.New("the wire is broken")

// nothing is a memory that stores no message.
type nothing struct{ fail error }

func (n *nothing) Save(context.Context, string, string) error              { return n.fail }
func (n *nothing) Load(context.Context, string) ([]string, error)          { return nil, n.fail }
func (n *nothing) Search(context.Context, string, int) ([]struct{}, error) { return nil, n.fail }
func (n *nothing) Clear(context.Context) error                             { return n.fail }

type setup struct {
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
	faults *drivertest.Faults
	locker *distlock.Locker
	inner  *nothing
	memory *lockedmemory.LockedMemory[string, struct{}]
}

func newSetup(t *testing.T, opts ...tracing.Option) *setup {
	t.Helper()
	return setupOn(t, memlock.NewDriver(), sdktrace.AlwaysSample(),
		&distlock.Options{TTL: time.Second, Logger: slog.New(slog.DiscardHandler)}, opts...)
}

func setupOn(t *testing.T, d driver.Driver, sampler sdktrace.Sampler, with *distlock.Options, opts ...tracing.Option) *setup {
	t.Helper()
	s := &setup{spans: tracetest.NewInMemoryExporter(), faults: drivertest.NewFaults(d), inner: &nothing{}}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans), sdktrace.WithSampler(sampler))
	s.tracer = provider.Tracer("the application")
	observer, err := tracing.New(append([]tracing.Option{tracing.WithTracerProvider(provider)}, opts...)...)
	must(t, err)
	with.Observer = observer
	s.locker, err = distlock.New(s.faults, with)
	must(t, err)
	t.Cleanup(func() { _ = s.locker.Close(context.Background()) })
	s.memory, err = lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey(session), nil)
	must(t, err)
	return s
}

// span returns the only span with the name.
func (s *setup) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, span := range s.spans.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %s", len(found), name)
	}
	return found[0]
}

func attributes(span tracetest.SpanStub) map[attribute.Key]attribute.Value {
	m := make(map[attribute.Key]attribute.Value)
	for _, a := range span.Attributes {
		m[a.Key] = a.Value
	}
	return m
}

func TestSave_isOneTraceWithItsAttributes(t *testing.T) {
	s := newSetup(t)
	ctx, root := s.tracer.Start(t.Context(), "request")
	must(t, s.memory.Save(ctx, "q", "a"))
	root.End()
	save, acquire, release := s.span(t, "lockedmemory.save"), s.span(t, "distlock.acquire"), s.span(t, "distlock.release")
	for _, span := range []tracetest.SpanStub{save, acquire, release} {
		if span.SpanContext.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%s belongs to another trace", span.Name)
		}
		if span.InstrumentationScope.Name != "beluga.memory.distlock" {
			t.Errorf("%s has the scope %q", span.Name, span.InstrumentationScope.Name)
		}
		if span.Status.Code != codes.Unset {
			t.Errorf("%s has the status %v", span.Name, span.Status)
		}
		attrs := attributes(span)
		if key := attrs["lock_key"].AsString(); len(key) != 16 || strings.Contains(key, "secret") {
			t.Errorf("%s has the lock_key %q", span.Name, key)
		}
		if attrs["distlock.backend"].AsString() != "memory" {
			t.Errorf("%s has the backend %q", span.Name, attrs["distlock.backend"].AsString())
		}
	}
	if save.Parent.SpanID() != root.SpanContext().SpanID() || acquire.Parent.SpanID() != save.SpanContext.SpanID() ||
		release.Parent.SpanID() != save.SpanContext.SpanID() {
		t.Error("the spans are not nested as the calls are")
	}
	got := attributes(acquire)
	if !got["acquired"].AsBool() || got["distlock.outcome"].AsString() != "acquired" ||
		got["distlock.attempts"].AsInt64() != 1 || got["distlock.ttl_ms"].AsInt64() != 1000 ||
		got["distlock.fence"].AsInt64() <= 0 || got["distlock.handoff"].AsString() != "none" ||
		got["distlock.wait_ms"].Type() != attribute.FLOAT64 {
		t.Errorf("distlock.acquire has %v", acquire.Attributes)
	}
	if f := attributes(release)["distlock.fence"]; f != got["distlock.fence"] {
		t.Errorf("distlock.release has the fence %v", f)
	}
}

// A busy lock names the span around the grant, or that of the grant.
func TestAcquire_busy_linksToTheHolder(t *testing.T) {
	for _, within := range []bool{true, false} {
		s := newSetup(t)
		ctx := t.Context()
		if within {
			ctx, _ = s.tracer.Start(ctx, "the turn in front")
		}
		lease, err := s.locker.Acquire(ctx, session)
		must(t, err)
		holder := trace.SpanContextFromContext(ctx)
		if !within {
			holder = s.span(t, "distlock.acquire").SpanContext
		}
		s.spans.Reset()
		if _, err := s.locker.TryAcquire(t.Context(), session); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatalf("TryAcquire: %v", err)
		}
		span := s.span(t, "distlock.acquire")
		attrs := attributes(span)
		if span.Status.Code != codes.Unset || len(span.Events) != 0 || attrs["acquired"].AsBool() ||
			attrs["distlock.outcome"].AsString() != "busy" {
			t.Errorf("status %v, events %v, attributes %v", span.Status, span.Events, span.Attributes)
		}
		linksTo(t, span, holder)
		must(t, lease.Release(t.Context()))
	}
}

func linksTo(t *testing.T, span tracetest.SpanStub, holder trace.SpanContext) {
	t.Helper()
	if len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != holder.SpanID() ||
		span.Links[0].SpanContext.TraceID() != holder.TraceID() {
		t.Errorf("links %v, want the span of the holder", span.Links)
	}
}

// The span of a waiter shows the source of the handoff: this process or the lock service.
func TestAcquire_showsTheHandoff(t *testing.T) {
	for handoff, held := range map[string]time.Duration{
		"local":  time.Millisecond,      // soon after its grant, a lock is handed off within the process
		"remote": 50 * time.Millisecond, // and later by the service
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			ctx, holder := s.tracer.Start(t.Context(), "the turn in front")
			lease, err := s.locker.Acquire(ctx, session)
			must(t, err)
			s.spans.Reset()
			go s.locker.Acquire(t.Context(), session)
			time.Sleep(held)
			must(t, lease.Release(t.Context()))
			synctest.Wait()
			acquire, release := s.span(t, "distlock.acquire"), s.span(t, "distlock.release")
			linksTo(t, acquire, holder.SpanContext())
			came, went := attributes(acquire), attributes(release)
			_, handed := went["distlock.handoff"]
			if came["distlock.handoff"].AsString() != handoff || handed != (handoff == "local") {
				t.Errorf("after a handoff that is %s, the spans have %v and %v", handoff, came, went)
			}
			for _, attrs := range []map[attribute.Key]attribute.Value{came, went} {
				if _, asked := attrs["distlock.attempts"]; asked != (handoff == "remote") {
					t.Errorf("attributes %v, want attempts only if the service was asked", attrs)
				}
			}
		})
	}
}

// refusal is the error of a store that has refused a write.
type refusal distlock.Outcome

func (r refusal) Error() string             { return "refused as " + string(r) }
func (r refusal) Outcome() distlock.Outcome { return distlock.Outcome(r) }

func TestFailure_setsStatusAndRecordsTheError(t *testing.T) {
	for outcome, fail := range map[distlock.Outcome]func(s *setup){
		distlock.OutcomeUnavailable: (*setup).broken,
		distlock.OutcomeStale:       func(s *setup) { s.inner.fail = fmt.Errorf("broken: %w", refusal(distlock.OutcomeStale)) },
		distlock.OutcomeConflict:    func(s *setup) { s.inner.fail = fmt.Errorf("broken: %w", refusal(distlock.OutcomeConflict)) },
	} {
		s := newSetup(t)
		fail(s)
		if err := s.memory.Save(t.Context(), "q", "a"); err == nil {
			t.Error("Save: no error")
		}
		names := []string{"lockedmemory.save"}
		if outcome == distlock.OutcomeUnavailable {
			names = append(names, "distlock.acquire")
		}
		for _, name := range names {
			span := s.span(t, name)
			if span.Status.Code != codes.Error || !strings.Contains(span.Status.Description, "broken") ||
				len(span.Events) != 1 || attributes(span)["distlock.outcome"].AsString() != string(outcome) {
				t.Errorf("%s: status %v, events %v, attributes %v", name, span.Status, span.Events, span.Attributes)
			}
		}
	}
}

// An inner memory may name the session in its errors; spans do not.
func TestFailure_innerMemory_keyIsRedacted(t *testing.T) {
	s := newSetup(t)
	s.inner.fail = fmt.Errorf("no table for %s", session)
	if err := s.memory.Save(t.Context(), "q", "a"); err != s.inner.fail {
		t.Fatalf("Save: %v", err)
	}
	text := fmt.Sprintf("%+v", s.spans.GetSpans())
	if strings.Contains(text, session) {
		t.Errorf("the key is in %s", text)
	}
	if span := s.span(t, "lockedmemory.save"); span.Status.Code != codes.Error ||
		!strings.Contains(span.Status.Description, "no table for") {
		t.Errorf("status %v", span.Status)
	}
}

// The recorded error has its text without the key. A short key leaves other words and figures as they
// are.
func TestFailure_recordedText(t *testing.T) {
	s := newSetup(t, tracing.WithKeyAttribute(distlock.KeyNone)) // which shows a key as (key)
	for _, c := range []struct{ key, text, want string }{
		{"1", "dial 127.0.0.1:6379: 15ms of 1.1s, 0.1, token 1711, 1h1m",
			"dial 127.0.0.1:6379: 15ms of 1.1s, 0.1, token 1711, 1h1m"},
		{"1", `session 1, "1", chat1.json, k=1, (1).`, `session (key), "(key)", chat(key).json, k=(key), ((key)).`},
		{"alice", "useralice.json, alices", "user(key).json, (key)s"},
		{"42", "42 in 421 and 142 and 4.42, not 42. 42", "(key) in 421 and 142 and 4.42, not (key). (key)"},
		{"a", "a table has a row, ä a", "(key) table has (key) row, ä (key)"},
		{"aa", "aaa aa", "aaa (key)"},
		{"é", "é, café: é", "(key), café: (key)"},
		{"a.b", "a.b a.bc a.b.c", "(key) a.bc (key).c"},
		{"", "no session", "no session"},
		{session, "chat" + session + "2", "chat(key)2"},
	} {
		s.spans.Reset()
		observer := fencing.Options(s.locker).Observer
		op := &distlock.Operation{Name: "lockedmemory.save", Key: c.key, Err: errors.New(c.text),
			Outcome: distlock.OutcomeFailed}
		observer.End(observer.Start(t.Context(), op), op)
		span := s.span(t, op.Name)
		recorded := make(map[attribute.Key]string)
		for _, a := range span.Events[0].Attributes {
			recorded[a.Key] = a.Value.AsString()
		}
		if span.Status.Description != c.want || recorded["exception.message"] != c.want {
			t.Errorf("key %q: status %q, recorded %q, want %q",
				c.key, span.Status.Description, recorded["exception.message"], c.want)
		}
		if got := span.Events[0].Name; got != "exception" {
			t.Errorf("key %q: the event is %s, want exception", c.key, got)
		}
	}
}

func TestTurn_waitHeldExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		busy, err := s.locker.Acquire(t.Context(), session)
		must(t, err)
		time.AfterFunc(500*time.Millisecond, func() { _ = busy.Release(context.Background()) })
		must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
			time.Sleep(300 * time.Millisecond)
			_, err := s.memory.Load(ctx, "")
			return errors.Join(err, s.memory.Save(ctx, "q", "a"))
		}))
		turn, load := s.span(t, "lockedmemory.turn"), s.span(t, "lockedmemory.load")
		got := attributes(turn)
		wait, held := got["distlock.wait_ms"].AsFloat64(), got["distlock.held_ms"].AsFloat64()
		if wait != 500 || held != 300 || got["lockedmemory.exchanges"].AsInt64() != 1 {
			t.Errorf("the span of the turn has %v", turn.Attributes)
		}
		if load.Parent.SpanID() != turn.SpanContext.SpanID() {
			t.Error("the span of the Load is not in the turn")
		}
		_, waited := attributes(load)["distlock.wait_ms"]
		if _, counted := attributes(load)["lockedmemory.exchanges"]; waited || counted {
			t.Errorf("the span of the Load has %v", load.Attributes)
		}
	})
}

// A stopped turn is one interrupted turn, and nothing that an alert counts. The Stop leads to it.
func TestStop_interruptedTurn(t *testing.T) {
	for _, interruptible := range []bool{true, false} { // or the store ends the turn before its context ends
		synctest.Test(t, func(t *testing.T) {
			reader := sdkmetric.NewManualReader()
			s := setupOn(t, memlock.NewDriver(), sdktrace.AlwaysSample(),
				&distlock.Options{Interruptible: interruptible, Logger: slog.New(slog.DiscardHandler)},
				tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
			sessions, err := memstore.NewDriver(nil)
			must(t, err)
			store, err := sessionstore.New(sessions, lockedmemory.FixedKey(session), sessionstore.JSON[string]{}, nil)
			must(t, err)
			memory, err := lockedmemory.New(store, s.locker, lockedmemory.FixedKey(session), nil)
			must(t, err)
			_, err = memory.Answer(t.Context(), "id", "q", func(ctx context.Context) ([]string, error) {
				if _, err := memory.Stop(context.Background(), "id", 0); err != nil {
					t.Errorf("Stop: %v", err)
				}
				if interruptible {
					<-ctx.Done()
					if err := memory.Save(ctx, "q", "a"); !errors.Is(err, distlock.ErrLost) {
						t.Errorf("Save: %v", err)
					}
				}
				return []string{"a"}, nil
			})
			if !errors.Is(err, lockedmemory.ErrStopped) {
				t.Errorf("Answer: %v", err)
			}
			answer := s.span(t, "lockedmemory.answer")
			linksTo(t, s.span(t, "lockedmemory.stop"), answer.SpanContext)
			for _, span := range s.spans.GetSpans() {
				outcome := attributes(span)["distlock.outcome"].AsString()
				if want := span.Name == "lockedmemory.answer" || strings.HasPrefix(span.Name, "lockedmemory.save"); want != (outcome == "interrupted") ||
					span.Status.Code != codes.Unset {
					t.Errorf("%s has the outcome %s and the status %v", span.Name, outcome, span.Status)
				}
			}
			points := collect(t, reader)
			for name, want := range map[string]float64{"lockedmemory.interrupted_turns": 1, "sessionstore.stale_writes": 0, "distlock.lost": 0} {
				if p, there := points[name+" backend=memory"]; !there || p.sum != want {
					t.Errorf("%s is %v, %t, want %v", name, p.sum, there, want)
				}
			}
		})
	}
}

// A Stop of one question of an AnswerAll is nothing that an alert counts. The span is that of a turn.
func TestAnswerAll_stoppedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		s := setupOn(t, memlock.NewDriver(), sdktrace.AlwaysSample(), &distlock.Options{},
			tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		store, err := memstore.New(lockedmemory.FixedKey(session), sessionstore.JSON[string]{}, nil, nil)
		must(t, err)
		memory, err := lockedmemory.New(store, s.locker, lockedmemory.FixedKey(session), nil)
		must(t, err)
		must(t, memory.Put(t.Context(), "a", "q"))
		pending, err := memory.Pending(t.Context())
		must(t, err)
		_, err = memory.AnswerAll(t.Context(), append(pending, lockedmemory.Question[string]{ID: "b", Message: "q"}),
			func(ctx context.Context, open []lockedmemory.Question[string]) ([]string, error) {
				if time.Sleep(time.Second); len(open) == 2 {
					_, err := memory.Stop(t.Context(), "b", 0)
					return []string{"a"}, err
				}
				return []string{"a"}, nil
			})
		must(t, err)
		got := attributes(s.span(t, "lockedmemory.answer_all"))
		if got["distlock.held_ms"].AsFloat64() != 2000 || got["lockedmemory.exchanges"].AsInt64() != 1 {
			t.Errorf("the span of the AnswerAll has %v", got)
		}
		s.span(t, "lockedmemory.put")
		for _, span := range s.spans.GetSpans() {
			if span.Status.Code != codes.Unset {
				t.Errorf("%s has the status %v", span.Name, span.Status)
			}
		}
		if p := collect(t, reader)["sessionstore.conflicts backend=memory"]; p.sum != 0 {
			t.Errorf("sessionstore.conflicts is %v", p.sum)
		}
	})
}

// A turn may have ended before its loss is reported. The trace still shows the loss.
func TestLoss_afterTheHoldersSpan_ownSpan(t *testing.T) {
	s := newSetup(t)
	ctx, turn := s.tracer.Start(t.Context(), "turn")
	lease, err := s.locker.Acquire(ctx, session)
	must(t, err)
	turn.End()
	s.broken()
	<-lease.Context().Done()
	must(t, s.locker.Close(t.Context()))
	span := s.span(t, distlock.OpLost)
	if span.Parent.SpanID() != turn.SpanContext().SpanID() || span.Status.Code != codes.Error ||
		len(span.Events) != 2 || span.Events[1].Name != "distlock.lost" || !span.EndTime.Equal(span.StartTime) {
		t.Errorf("the loss has the span %+v", span)
	}
	if text := fmt.Sprintf("%+v", span); strings.Contains(text, session) {
		t.Errorf("the key is in %s", text)
	}
}

func TestFailure_panicOfTheWork_spanEnds(t *testing.T) {
	s := newSetup(t)
	func() {
		defer func() { _ = recover() }()
		_ = s.memory.Turn(t.Context(), func(context.Context) error { panic("work") })
	}()
	if span := s.span(t, "lockedmemory.turn"); span.Status.Code != codes.Error ||
		attributes(span)["distlock.outcome"].AsString() != "failed" {
		t.Errorf("the span has %v, %v", span.Status, span.Attributes)
	}
}

// A Locker reports operations without a caller later: their spans have the times of the operations.
func TestSpans_laterReport_ownTimes(t *testing.T) {
	s := newSetup(t)
	observer := fencing.Options(s.locker).Observer
	began := time.Now().Add(-time.Hour).UTC()
	renewal := &distlock.Operation{Name: distlock.OpExtend, Key: session, Scheduled: true, Began: began,
		Wait: 2 * time.Second, Err: errBroken, Outcome: distlock.OutcomeUnavailable}
	ctx, root := s.tracer.Start(t.Context(), "turn")
	observer.End(observer.Start(ctx, renewal), renewal)
	loss := &distlock.Operation{Name: distlock.OpLost, Key: session, Began: began, Outcome: distlock.OutcomeLost}
	observer.End(observer.Start(ctx, loss), loss)
	root.End()
	span, end := s.span(t, distlock.OpExtend), began.Add(2*time.Second)
	if !span.StartTime.Equal(began) || !span.EndTime.Equal(end) || !span.Events[0].Time.Equal(end) {
		t.Errorf("the span lasts from %s to %s, its error is of %s", span.StartTime, span.EndTime, span.Events[0].Time)
	}
	if events := s.span(t, "turn").Events; len(events) != 1 || events[0].Name != "distlock.lost" || !events[0].Time.Equal(began) {
		t.Errorf("the span of the turn has %v, want a lost lease at %s", events, began)
	}
}

func TestWithKeyAttribute(t *testing.T) {
	for mode, want := range map[distlock.KeyMode]string{
		distlock.KeyRaw: session, distlock.KeyNone: "", distlock.KeyHashed: "8b24f1a166ac8c39",
	} {
		s := newSetup(t, tracing.WithKeyAttribute(mode))
		must(t, s.memory.Clear(t.Context()))
		got, there := attributes(s.span(t, "lockedmemory.clear"))["lock_key"]
		if there != (want != "") || there && got.AsString() != want {
			t.Errorf("%s: lock_key %q, want %q", mode, got.AsString(), want)
		}
	}
}

func TestNew_refusesOptionsOutOfRange(t *testing.T) {
	for name, option := range map[string]tracing.Option{
		"nil provider": tracing.WithTracerProvider(nil),
		"nil meters":   tracing.WithMeterProvider(nil),
	} {
		if tr, err := tracing.New(option); tr != nil || !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, %v, want ErrInvalidOption", name, tr, err)
		}
	}
	if _, err := tracing.New(); err != nil {
		t.Errorf("no options: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
