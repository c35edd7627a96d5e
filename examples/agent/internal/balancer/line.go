package balancer

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/internal/test/child"
)

// Delivery is a message on its way to an instance.
type Delivery struct {
	Session, Message int
	Tries            int // earlier deliveries
	Strike           Strike
}

// Strike is the end or the pause of an instance at a place of a turn. An empty Place means none.
type Strike struct {
	Place history.Place
	Kill  bool // otherwise a pause
}

// Line is a report of an instance. The zero Line says that the turn has reached the place of its Strike.
type Line struct {
	Turn *Turn // a turn has ended
	Span *Span // a span has ended
}

// Turn is one message of a user, from its delivery to the end of the work that it causes.
type Turn struct {
	Session, Message int
	Instance         string
	Start, End       time.Time
	Error            string // empty if the turn succeeded
	Refused          bool   // the store refused a stale write
}

// Span is a finished span of OpenTelemetry.
type Span struct {
	ID, Parent, Name, Instance string
	Start, End                 time.Time
	Links                      []string // IDs of other spans
	Failed                     bool
}

// Exporter is a span exporter that sends the spans of an instance to the program.
type Exporter struct {
	Program  *child.Line
	Instance string
}

// ExportSpans sends a Line for each span.
func (e Exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		span := Span{ID: s.SpanContext().SpanID().String(), Parent: s.Parent().SpanID().String(), Name: s.Name(),
			Instance: e.Instance, Start: s.StartTime(), End: s.EndTime(), Failed: s.Status().Code == codes.Error}
		for _, link := range s.Links() {
			span.Links = append(span.Links, link.SpanContext.SpanID().String())
		}
		if err := e.Program.Send(Line{Span: &span}); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown does nothing: ExportSpans keeps no span.
func (Exporter) Shutdown(context.Context) error { return nil }
