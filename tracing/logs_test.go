package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/tracing"
)

// logLines lists the log lines about one key, by a part of their text, with their causes.
var logLines = map[string]func(context.Context, *testing.T, *setup){
	"a lease was lost": func(ctx context.Context, t *testing.T, s *setup) {
		lease, err := s.locker.Acquire(ctx, session)
		must(t, err)
		s.broken()
		<-lease.Context().Done()
	},
	"could not be released": failedRelease,
	"cannot notify waiters": waiterWithoutWakes,
}

func (s *setup) broken() {
	s.faults.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errBroken} })
}

func failedRelease(ctx context.Context, t *testing.T, s *setup) {
	lease, err := s.locker.Acquire(ctx, session)
	must(t, err)
	s.broken()
	if err := lease.Release(t.Context()); err == nil {
		t.Error("Release: no error")
	}
}

func waiterWithoutWakes(ctx context.Context, t *testing.T, s *setup) {
	other, err := distlock.New(s.faults.Driver, nil)
	must(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	held, err := other.Acquire(t.Context(), session)
	must(t, err)
	time.AfterFunc(time.Second, func() { _ = held.Release(context.Background()) })
	s.faults.Inject(func(c drivertest.Call) drivertest.Fault {
		if c.Op == drivertest.Listen {
			return drivertest.Fault{Before: errBroken}
		}
		return drivertest.Fault{}
	})
	must(t, s.locker.Do(ctx, session, func(context.Context) error { return nil }))
}

// Log lines are joined with spans by the key's attribute, under the same mode, and with the trace of the
// caller that acquired the lease, or that waits for it.
func TestLogs_haveTheKeyOfSpans(t *testing.T) {
	for text, cause := range logLines {
		for mode, want := range map[distlock.KeyMode]any{
			"": "8b24f1a166ac8c39", distlock.KeyHashed: "8b24f1a166ac8c39", distlock.KeyRaw: session, distlock.KeyNone: nil,
		} {
			t.Run(text+"/"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					handler := tracing.LogHandler(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
					s := setupOn(t, memlock.NewDriver(), sdktrace.AlwaysSample(),
						&distlock.Options{TTL: time.Second, Logger: slog.New(handler), LogKeys: mode}, tracing.WithKeyAttribute(mode))
					ctx, request := s.tracer.Start(t.Context(), "request")
					cause(ctx, t, s)
					request.End()
					_ = s.locker.Close(t.Context()) // the log is complete
					line := lineWith(t, log.Bytes(), text)
					if got := line["lock_key"]; got != want {
						t.Errorf("the log line has the lock_key %v, want %v", got, want)
					}
					for _, span := range s.spans.GetSpans() {
						got, there := attributes(span)["lock_key"]
						if span.Name != "request" && (there != (want != nil) || there && got.AsString() != want) {
							t.Errorf("the span %s has the lock_key %q, want %v", span.Name, got.AsString(), want)
						}
					}
					if mode != distlock.KeyRaw && strings.Contains(log.String(), session) {
						t.Errorf("the log shows the key: %s", &log)
					}
					caller := "request"
					if text == "cannot notify waiters" {
						caller = "distlock.acquire"
					}
					of := s.span(t, caller).SpanContext
					if line["trace_id"] != of.TraceID().String() || line["span_id"] != of.SpanID().String() {
						t.Errorf("the line has %v, want the IDs of %s", line, caller)
					}
				})
			})
		}
	}
}

// lineWith returns the attributes of the only log line with the text.
func lineWith(t *testing.T, log []byte, text string) map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range bytes.Lines(log) {
		var attrs map[string]any
		must(t, json.Unmarshal(line, &attrs))
		if strings.Contains(attrs["msg"].(string), text) {
			found = append(found, attrs)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines %q in the log: %s", len(found), text, log)
	}
	return found[0]
}
