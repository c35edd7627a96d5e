// Package spans takes the spans of an agent instance to the program that started it, and to a collector.
package spans

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// shutdownTimeout is how long a collector may take for the last spans.
const shutdownTimeout = 5 * time.Second

// Turn is the name of the span of a whole turn: one message of a user, from its delivery to the end
// of what it causes.
const Turn = "agent.turn"

// Model is the name of the span of the model's work in a turn.
const Model = "model"

// The attributes of a turn.
const (
	sessionKey = attribute.Key("agent.session")
	messageKey = attribute.Key("agent.message")
)

// refusedKey is an attribute of a span in which the store refused a stale write.
const refusedKey = attribute.Key("agent.refused")

// Span is a finished span, as a line of JSON carries it.
type Span struct {
	ID, Parent, Name, Instance string
	Start, End                 time.Time
	Links                      []string // IDs of other spans
	Session, Message           int      // of a Turn
	Error                      string   // why it failed; empty if it did not
	Refused                    bool     // the store refused a stale write
}

// StartTurn begins the span of a turn. The function that it returns ends it, and keeps the error.
func StartTurn(ctx context.Context, tracer trace.Tracer, session, message int) (context.Context, func(error)) {
	ctx, span := tracer.Start(ctx, Turn, trace.WithAttributes(sessionKey.Int(session), messageKey.Int(message)))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Refused notes in the current span that the store refused a stale write.
func Refused(ctx context.Context) { trace.SpanFromContext(ctx).SetAttributes(refusedKey.Bool(true)) }

// Provider is a tracer provider whose Shutdown also returns what was wrong with the collector in
// the meantime.
type Provider struct {
	*sdktrace.TracerProvider
	delivered context.Context
}

// About is the resource of an instance: its name, and the part of a turn that the lock covers.
func About(instance, locked string) *resource.Resource {
	return resource.NewSchemaless(attribute.String("service.name", "belugalock-agent"),
		attribute.String("service.instance.id", instance), attribute.String("agent.lock", locked))
}

// NewProvider makes a provider that writes the finished spans of an instance to lines. If one of
// the variables OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, it sends
// them there as well, by OTLP over HTTP. It is meant to be the only one in its process.
func NewProvider(ctx context.Context, lines io.Writer, instance string, about *resource.Resource) (*Provider, error) {
	delivered, fail := context.WithCancelCause(context.Background())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(fail)) // exporters work in the background: there is no other way to learn of it
	p := &Provider{sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithSyncer(exporter{lines, instance})), delivered}
	if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) == "" {
		return p, nil
	}
	collector, err := otlptracehttp.New(ctx) // reads the variables itself
	if err != nil {
		return nil, err
	}
	p.RegisterSpanProcessor(sdktrace.NewBatchSpanProcessor(collector))
	return p, nil
}

// Shutdown sends what is left, for which it takes five seconds at most.
func (p *Provider) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	return cmp.Or(p.TracerProvider.Shutdown(ctx), context.Cause(p.delivered))
}

type exporter struct {
	lines    io.Writer
	instance string
}

func (e exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		line := Span{ID: s.SpanContext().SpanID().String(), Parent: s.Parent().SpanID().String(), Name: s.Name(),
			Instance: e.instance, Start: s.StartTime(), End: s.EndTime()}
		if s.Status().Code == codes.Error {
			line.Error = cmp.Or(s.Status().Description, "an error without a text")
		}
		for _, link := range s.Links() {
			line.Links = append(line.Links, link.SpanContext.SpanID().String())
		}
		for _, about := range s.Attributes() {
			switch about.Key {
			case sessionKey:
				line.Session = int(about.Value.AsInt64())
			case messageKey:
				line.Message = int(about.Value.AsInt64())
			case refusedKey:
				line.Refused = about.Value.AsBool()
			}
		}
		if err := json.NewEncoder(e.lines).Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (e exporter) Shutdown(context.Context) error { return nil }
