// Package tracing reports the operations of distlock and lockedmemory to OpenTelemetry.
//
// A [Tracing] is a distlock.Observer. Put it into the Options of a Locker. Then every acquire,
// extend and release becomes a span of the scope "beluga.memory.distlock". So does every turn and
// every Load and write of a locked memory over that Locker:
//
//	distlock.acquire     distlock.extend        distlock.release
//	lockedmemory.turn    lockedmemory.answer    lockedmemory.load
//	lockedmemory.save    lockedmemory.append
//	lockedmemory.replace lockedmemory.clear     lockedmemory.delete
//
// A lost lease is the event distlock.lost on the span that was current when the lease was acquired.
// A distlock.acquire that found the lock busy is linked to the span under which the last known
// holder had acquired the lock. The link crosses processes: the lock carries the trace context.
//
// Attributes:
//
//	lock_key            the key: hashed unless WithKeyAttribute sets another mode
//	acquired            of distlock.acquire: whether the lock was granted
//	distlock.backend    "redis", "memory", …
//	distlock.outcome    acquired, done, busy, timeout, cancelled, unavailable, refused,
//	                    unknown, lost, failed, stale, conflict
//	distlock.attempts   the number of requests to the lock service
//	distlock.wait_ms    of distlock.acquire: milliseconds from the call to the grant or its refusal;
//	                    of a turn or answer: until its function begins
//	distlock.held_ms    of a turn or answer: milliseconds from there to the end of its function, or to
//	                    the loss of the lease; 0 inside another turn, and without the lock
//	lockedmemory.exchanges  of a turn or answer: how many of its Saves were stored
//	distlock.ttl_ms     the requested TTL in milliseconds
//	distlock.fence      the fencing token
//	distlock.handoff    of a granted distlock.acquire: none, local or remote, see below;
//	                    of a distlock.release: local, after a handoff within the process
//	distlock.scheduled  of distlock.extend: true for a renewal by the schedule
//	distlock.nodes      of a lock on a quorum of nodes: how many nodes there are
//	distlock.quorum     and how many of them have to agree
//
// The handoff of a distlock.acquire is
//
//	none    if the lock was free when the lock service was asked
//	local   if another lease of this process handed the lock off, without the lock service;
//	        then this acquire and that release have no distlock.attempts
//	remote  if the lock service handed the lock off to this process, which had queued there
//
// The link shows the last holder that the lock service or this process knew of. A lock that is
// handed off within a process keeps the trace context of its first holder there. Waiters of other
// processes are linked to that holder.
//
// On a quorum, each answer of a node is the event distlock.node, with the attributes
//
//	distlock.node          its name, as host:port
//	distlock.node.answer   a word, as granted or busy, or the text of an error
//	distlock.node.took_ms  milliseconds from the request to the answer
//
// Answers after the end of the operation have no event, and neither have those to scheduled renewals,
// which share requests.
//
// Outcomes busy, timeout and cancelled are results of contention. Every other failure sets the span's
// status to error and records the error.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
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

// WithKeyAttribute sets what the attribute lock_key shows. Default: [distlock.KeyHashed].
// Log lines of a Locker have the same attribute if its Options.LogKeys is the same mode.
func WithKeyAttribute(mode distlock.KeyMode) Option {
	return func(t *Tracing) { t.keys = mode }
}

// Tracing is a distlock.Observer. It is safe for concurrent use.
type Tracing struct {
	provider trace.TracerProvider
	tracer   trace.Tracer
	keys     distlock.KeyMode
}

var _ distlock.Observer = (*Tracing)(nil)

// New makes a Tracing. It returns distlock.ErrInvalidOption for a nil provider and for an unknown
// KeyMode.
func New(opts ...Option) (*Tracing, error) {
	t := &Tracing{provider: otel.GetTracerProvider()}
	for _, option := range opts {
		option(t)
	}
	if t.provider == nil {
		return nil, fmt.Errorf("%w: the TracerProvider is nil: leave the option out", distlock.ErrInvalidOption)
	}
	if err := fencing.ValidKeyMode(t.keys); err != nil {
		return nil, err
	}
	t.tracer = t.provider.Tracer(Scope)
	return t, nil
}

// Start begins the operation's span. A Locker calls it.
func (t *Tracing) Start(ctx context.Context, op *distlock.Operation) context.Context {
	if op.Name == distlock.OpLost {
		return ctx // a loss is an event on the current span
	}
	kind, request := trace.SpanKindInternal, strings.HasPrefix(op.Name, "distlock.")
	if request {
		kind = trace.SpanKindClient
	}
	around := trace.SpanContextFromContext(ctx)
	ctx, span := t.tracer.Start(ctx, op.Name, trace.WithSpanKind(kind), trace.WithAttributes(t.known(op)...),
		trace.WithTimestamp(op.Began)) // zero is now
	if op.Name == distlock.OpAcquire {
		// Other callers wait for the work around this acquire. Without a span around it, the link
		// shows this acquire.
		if !around.IsValid() {
			around = span.SpanContext()
		}
		op.Metadata = inject(around)
	}
	if request && span.IsRecording() {
		ctx = driver.WithNodeAnswers(ctx, t.onNode(span, op.Key))
	}
	return ctx
}

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

// End ends the span that Start began.
func (t *Tracing) End(ctx context.Context, op *distlock.Operation) {
	span := trace.SpanFromContext(ctx)
	if op.Name == distlock.OpLost {
		span.AddEvent(op.Name, trace.WithAttributes(attribute.Int64("distlock.fence", op.Fence)),
			trace.WithTimestamp(op.Began))
		return
	}
	var ended time.Time // zero is now
	if !op.Began.IsZero() {
		ended = op.Began.Add(op.Wait)
	}
	span.SetAttributes(learnt(op)...)
	if op.Name == distlock.OpAcquire {
		if blocker := extract(op.Blocker); blocker.IsValid() {
			span.AddLink(trace.Link{SpanContext: blocker})
		}
	}
	switch op.Outcome {
	case distlock.OutcomeUnavailable, distlock.OutcomeRefused, distlock.OutcomeUnknown,
		distlock.OutcomeLost, distlock.OutcomeFailed, distlock.OutcomeStale, distlock.OutcomeConflict:
		text := "the call panicked or ended its goroutine"
		if op.Err != nil {
			text = t.redacted(op.Err.Error(), op.Key)
		}
		span.SetStatus(codes.Error, text)
		// RecordError takes message and type from one error, so it would show the key.
		recorded := []attribute.KeyValue{attribute.String("exception.message", text)}
		if op.Err != nil {
			recorded = append(recorded, attribute.String("exception.type", typeOf(op.Err)))
		}
		span.AddEvent("exception", trace.WithAttributes(recorded...), trace.WithTimestamp(ended))
	}
	span.End(trace.WithTimestamp(ended))
}

// known returns the attributes of an operation before its request.
func (t *Tracing) known(op *distlock.Operation) []attribute.KeyValue {
	return slices.Concat(
		some(true, attribute.String("distlock.backend", op.Backend)),
		some(t.keys != distlock.KeyNone, attribute.String("lock_key", t.keys.Show(op.Key))),
		some(op.TTL > 0, attribute.Int64("distlock.ttl_ms", op.TTL.Milliseconds())),
		some(op.Name == distlock.OpExtend, attribute.Bool("distlock.scheduled", op.Scheduled)),
	)
}

// learnt returns the attributes of an operation after its answer.
func learnt(op *distlock.Operation) []attribute.KeyValue {
	return slices.Concat(
		some(true, attribute.String("distlock.outcome", string(op.Outcome))),
		some(op.Attempts > 0, attribute.Int("distlock.attempts", op.Attempts)),
		some(op.Fence > 0, attribute.Int64("distlock.fence", op.Fence)),
		some(op.Name == distlock.OpAcquire,
			attribute.Bool("acquired", op.Outcome == distlock.OutcomeAcquired),
			attribute.Float64("distlock.wait_ms", float64(op.Wait.Microseconds())/1000)),
		some(op.Handoff != "", attribute.String("distlock.handoff", string(op.Handoff))),
		some(op.Name == lockedmemory.OpTurn || op.Name == lockedmemory.OpAnswer,
			attribute.Float64("distlock.wait_ms", float64(op.Wait.Microseconds())/1000),
			attribute.Float64("distlock.held_ms", float64(op.Held.Microseconds())/1000),
			attribute.Int("lockedmemory.exchanges", op.Exchanges)),
		some(op.Unlocked, attribute.Bool("distlock.unlocked", true)),
	)
}

// some returns the attributes if the operation has them.
func some(has bool, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if !has {
		return nil
	}
	return attrs
}

// propagator writes the W3C trace context into the metadata of the lock.
var propagator = propagation.TraceContext{}

func inject(span trace.SpanContext) map[string]string {
	carrier := propagation.MapCarrier{}
	propagator.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return carrier
}

func extract(metadata map[string]string) trace.SpanContext {
	return trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.MapCarrier(metadata)))
}
