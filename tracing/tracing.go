package tracing

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Scope is the name of the instrumentation scope.
const Scope = "beluga.memory.distlock"

// Option configures [New].
type Option func(*Tracing)

// WithTracerProvider sets where spans go. Default: the global provider, at the time of [New].
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(t *Tracing) { t.provider = provider }
}

// WithMeterProvider sets where metrics go. Default: the global provider, at the time of [New].
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(t *Tracing) { t.meters = provider }
}

// WithKeyAttribute sets what the attribute lock_key shows. Default: [distlock.KeyHashed].
// Log lines of a Locker have the same attribute if its Options.LogKeys is the same mode.
func WithKeyAttribute(mode distlock.KeyMode) Option {
	return func(t *Tracing) { t.keys = mode }
}

// Tracing is a distlock.Observer. It is safe for concurrent use. With no-op providers of both, spans and
// metrics, it is off and costs a Locker nothing.
type Tracing struct {
	provider trace.TracerProvider
	meters   metric.MeterProvider
	tracer   trace.Tracer // nil without spans
	metrics  *metrics     // nil without metrics
	keys     distlock.KeyMode
}

var _ distlock.Observer = (*Tracing)(nil)

// New makes a Tracing. It returns distlock.ErrInvalidOption for a nil provider, and
// the error of a provider that cannot make the metrics.
func New(opts ...Option) (*Tracing, error) {
	t := &Tracing{provider: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, option := range opts {
		option(t)
	}
	if t.provider == nil || t.meters == nil {
		return nil, fmt.Errorf("%w: the TracerProvider or MeterProvider is nil: leave the option out",
			distlock.ErrInvalidOption)
	}
	t.tracer = t.provider.Tracer(Scope)
	if _, off := t.tracer.(noop.Tracer); off {
		t.tracer = nil
	}
	var err error
	if t.metrics, err = newMetrics(t.meters.Meter(Scope)); err != nil {
		return nil, fmt.Errorf("tracing: the MeterProvider makes no metrics: %w", err)
	}
	return t, nil
}

// Enabled reports whether spans or metrics go anywhere. A Locker leaves out a Tracing that is not enabled.
func (t *Tracing) Enabled() bool { return t.tracer != nil || t.metrics != nil }

// Start begins the operation's span. A Locker calls it.
func (t *Tracing) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if t.tracer != nil && op.Name != distlock.OpLost { // a loss is an event on the current span
		ctx = t.startSpan(ctx, op)
	}
	t.metrics.start(ctx, op)
	return ctx
}

// End ends the span that Start began.
func (t *Tracing) End(ctx context.Context, op *distlock.Operation) {
	t.metrics.end(ctx, op)
	if t.tracer != nil {
		t.endSpan(ctx, op)
	}
}

func (t *Tracing) startSpan(ctx context.Context, op *distlock.Operation) context.Context {
	outside, kind, request := ctx, internal, strings.HasPrefix(op.Name, "distlock.")
	if request {
		kind = client
	}
	// An option without effect takes half a microsecond, so a span that begins now has no timestamp.
	options := append(make([]trace.SpanStartOption, 0, 3), kind, trace.WithAttributes(t.startAttributes(op)...))
	if !op.Began.IsZero() {
		options = append(options, trace.WithTimestamp(op.Began))
	}
	ctx, span := t.tracer.Start(ctx, op.Name, options...)
	if op.Name == distlock.OpAcquire {
		// Other callers wait for the work around this acquire. Without a span around it, the link
		// shows this acquire.
		if !trace.SpanContextFromContext(outside).IsValid() {
			outside = ctx
		}
		op.Metadata = inject(outside)
	}
	if request && span.IsRecording() {
		ctx = driver.WithNodeAnswers(ctx, t.onNode(span, op.Key))
	}
	return ctx
}

var internal, client = trace.WithSpanKind(trace.SpanKindInternal), trace.WithSpanKind(trace.SpanKindClient)

// onNode returns a function that adds the answer of a node to span, until span ends.
func (t *Tracing) onNode(span trace.Span, key string) func(driver.NodeAnswer) {
	return func(a driver.NodeAnswer) {
		span.SetAttributes(attribute.Int("distlock.nodes", a.Nodes), attribute.Int("distlock.quorum", a.Quorum))
		span.AddEvent("distlock.node", trace.WithAttributes(
			attribute.String("distlock.node", a.Node),
			attribute.String("distlock.node.answer", t.redacted(a.Answer, key)),
			attribute.Float64("distlock.node.took_ms", float64(a.Took.Microseconds())/1000)))
	}
}

// redacted returns a text without the key, unless the options show the key.
func (t *Tracing) redacted(text, key string) string {
	return redacted(text, key, cmp.Or(t.keys.Show(key), "(key)"))
}

func (t *Tracing) endSpan(ctx context.Context, op *distlock.Operation) {
	span := trace.SpanFromContext(ctx)
	if op.Name == distlock.OpLost {
		t.lost(ctx, span, op)
		return
	}
	if !span.IsRecording() {
		span.End()
		return
	}
	var ended time.Time // zero is now
	if !op.Began.IsZero() {
		ended = op.Began.Add(op.Wait)
	}
	span.SetAttributes(endAttributes(op)...)
	if blocker := extract(op.Blocker); blocker.IsValid() {
		span.AddLink(trace.Link{SpanContext: blocker})
	}
	if isError(op.Outcome) {
		t.fail(span, op, ended)
	}
	if ended.IsZero() {
		span.End()
	} else {
		span.End(trace.WithTimestamp(ended))
	}
}

// lost adds the event of a loss to the span of the holder. If that span has ended, the event has a span
// of its own in the same trace.
func (t *Tracing) lost(ctx context.Context, span trace.Span, op *distlock.Operation) {
	at := trace.WithTimestamp(op.Began)
	if !span.IsRecording() && span.SpanContext().IsSampled() {
		_, span = t.tracer.Start(ctx, op.Name, internal, trace.WithAttributes(t.startAttributes(op)...), at)
		defer span.End(at)
		span.SetAttributes(attribute.String("distlock.outcome", string(op.Outcome)))
		t.fail(span, op, op.Began)
	}
	span.AddEvent(op.Name, trace.WithAttributes(attribute.Int64("distlock.fence", op.Fence)), at)
}

// isError reports whether an outcome is an error of its span. Contention is not.
func isError(outcome distlock.Outcome) bool {
	switch outcome {
	case distlock.OutcomeAcquired, distlock.OutcomeDone,
		distlock.OutcomeBusy, distlock.OutcomeTimeout, distlock.OutcomeCancelled, distlock.OutcomeInterrupted:
		return false
	}
	return true
}

// fail sets the span's status and records the error.
func (t *Tracing) fail(span trace.Span, op *distlock.Operation, ended time.Time) {
	text := "the call panicked or ended its goroutine"
	if op.Err != nil {
		text = t.redacted(op.Err.Error(), op.Key)
	}
	span.SetStatus(codes.Error, text)
	// RecordError would show the key.
	recorded := trace.WithAttributes(attribute.String("exception.message", text))
	span.AddEvent("exception", recorded, trace.WithTimestamp(ended))
}

// startAttributes returns the attributes of an operation before its request.
func (t *Tracing) startAttributes(op *distlock.Operation) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 4), attribute.String("distlock.backend", op.Backend))
	if t.keys != distlock.KeyNone {
		attrs = append(attrs, attribute.String("lock_key", t.keys.Show(op.Key)))
	}
	if op.TTL > 0 {
		attrs = append(attrs, attribute.Int64("distlock.ttl_ms", op.TTL.Milliseconds()))
	}
	if op.Name == distlock.OpExtend {
		attrs = append(attrs, attribute.Bool("distlock.scheduled", op.Scheduled))
	}
	return attrs
}

// endAttributes returns the attributes of an operation after its answer.
func endAttributes(op *distlock.Operation) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 6), attribute.String("distlock.outcome", string(op.Outcome)))
	if op.Attempts > 0 {
		attrs = append(attrs, attribute.Int("distlock.attempts", op.Attempts))
	}
	if op.Fence > 0 {
		attrs = append(attrs, attribute.Int64("distlock.fence", op.Fence))
	}
	if op.Name == distlock.OpAcquire {
		attrs = append(attrs, attribute.Bool("acquired", op.Outcome == distlock.OutcomeAcquired),
			attribute.Float64("distlock.wait_ms", float64(op.Wait.Microseconds())/1000))
	}
	switch op.Name {
	case lockedmemory.OpTurn, lockedmemory.OpAnswer, lockedmemory.OpAnswerAll:
		attrs = append(attrs, attribute.Float64("distlock.wait_ms", float64(op.Wait.Microseconds())/1000),
			attribute.Float64("distlock.held_ms", float64(op.Held.Microseconds())/1000),
			attribute.Int("lockedmemory.exchanges", op.Exchanges))
	}
	if op.Handoff != "" {
		attrs = append(attrs, attribute.String("distlock.handoff", string(op.Handoff)))
	}
	return attrs
}

// propagator writes the W3C trace context into the metadata of the lock.
var propagator = propagation.TraceContext{}

// inject returns the trace context of the span of ctx.
func inject(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	return carrier
}

func extract(metadata map[string]string) trace.SpanContext {
	if len(metadata) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.MapCarrier(metadata)))
}
