package tracing

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// LogHandler returns h with the attributes trace_id and span_id for each line whose context has a span,
// as OpenTelemetry names them in logs of other formats. They stand outside all groups. The lines of a Locker
// have the context under which the lease was acquired:
//
//	distlock.Options{Logger: slog.New(tracing.LogHandler(slog.NewJSONHandler(os.Stderr, nil)))}
//
// A handler of OpenTelemetry itself needs no LogHandler.
func LogHandler(h slog.Handler) slog.Handler { return &logHandler{Handler: h} }

// logHandler keeps the handler from before the first group, and the way from there.
type logHandler struct {
	slog.Handler
	before slog.Handler // nil without a group
	within func(slog.Handler) slog.Handler
}

func (h *logHandler) Handle(ctx context.Context, line slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return h.Handler.Handle(ctx, line)
	}
	ids := []slog.Attr{slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String())}
	if h.before != nil {
		return h.within(h.before.WithAttrs(ids)).Handle(ctx, line)
	}
	line = line.Clone()
	line.AddAttrs(ids...)
	return h.Handler.Handle(ctx, line)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) }
	if h.before == nil {
		return &logHandler{Handler: with(h.Handler)}
	}
	return h.then(with)
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" { // as slog demands
		return h
	}
	return h.then(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

// then returns h after another step inside a group.
func (h *logHandler) then(step func(slog.Handler) slog.Handler) *logHandler {
	next := &logHandler{Handler: step(h.Handler), before: h.before, within: step}
	if h.before == nil {
		next.before = h.Handler
	} else {
		next.within = func(to slog.Handler) slog.Handler { return step(h.within(to)) }
	}
	return next
}
