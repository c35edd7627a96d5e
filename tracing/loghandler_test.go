package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/slogtest"

	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/tracing"
)

func TestLogHandler_isAHandler(t *testing.T) {
	var log bytes.Buffer
	handler := tracing.LogHandler(slog.NewJSONHandler(&log, nil))
	must(t, slogtest.TestHandler(handler, func() (lines []map[string]any) {
		for line := range bytes.Lines(log.Bytes()) {
			var attrs map[string]any
			must(t, json.Unmarshal(line, &attrs))
			lines = append(lines, attrs)
		}
		return lines
	}))
}

func TestLogHandler_idsOutsideGroups(t *testing.T) {
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	within := trace.ContextWithSpanContext(t.Context(), span)
	for want, ctx := range map[string]context.Context{
		`,"trace_id":"01000000000000000000000000000000","span_id":"0200000000000000"`: within,
		``: t.Context(),
	} {
		for line, log := range map[string]func(*slog.Logger){
			`{"msg":"m","a":1` + want + `}`: func(l *slog.Logger) { l.With("a", 1).InfoContext(ctx, "m") },
			`{"msg":"m"` + want + `,"g":{"a":1,"h":{"b":2,"c":3}}}`: func(l *slog.Logger) {
				l.WithGroup("g").With("a", 1).WithGroup("").WithGroup("h").With("b", 2).InfoContext(ctx, "m", "c", 3)
			},
			`{"msg":"m","a":1,"b":2` + want + `,"g":{"c":3}}`: func(l *slog.Logger) {
				l.With("a", 1).With("b", 2).WithGroup("g").InfoContext(ctx, "m", "c", 3)
			},
		} {
			var text bytes.Buffer
			log(slog.New(tracing.LogHandler(slog.NewJSONHandler(&text, &slog.HandlerOptions{
				ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
					if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
						return slog.Attr{}
					}
					return a
				}}))))
			if text.String() != line+"\n" {
				t.Errorf("the line is %s, want %s", &text, line)
			}
		}
	}
}
