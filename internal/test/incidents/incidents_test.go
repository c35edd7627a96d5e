package incidents_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/incidents"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/tracing"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// span is what the report knows of a span.
type span struct{ instance, name, key, outcome string }

// Each incident happens. The report has a span for each operation, and the link of each waiter shows the holder
// of the report.
func TestPlay_everythingHappensAndIsReported(t *testing.T) {
	server := servers.StartRedis(t)
	exporters := make(map[string]*tracetest.InMemoryExporter)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	scene, err := incidents.Play(t, server.Addr(), 100*time.Millisecond, func(instance string) incidents.Telemetry {
		exporters[instance] = tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporters[instance]))
		observer, err := tracing.New(tracing.WithTracerProvider(provider))
		if err != nil {
			t.Fatal(err)
		}
		return incidents.Telemetry{Observer: observer, Tracer: provider.Tracer("application"), Logger: logger}
	})
	if err != nil {
		t.Fatal(err)
	}
	seen, links, handoffs := make(map[span]int), make(map[trace.TraceID][]trace.TraceID), make(map[string]int)
	for instance, exporter := range exporters {
		for _, s := range exporter.GetSpans() {
			one := span{instance: instance, name: s.Name}
			for _, a := range s.Attributes {
				switch a.Key {
				case "lock_key":
					one.key = a.Value.AsString()
				case "distlock.outcome":
					one.outcome = a.Value.AsString()
				case "distlock.handoff":
					handoffs[a.Value.AsString()]++
				}
			}
			seen[one]++
			for _, link := range s.Links {
				id := s.SpanContext.TraceID()
				links[id] = append(links[id], link.SpanContext.TraceID())
			}
		}
	}
	for e, n := range scene.Operations {
		one := span{e.Instance, e.Name, distlock.KeyHashed.Show(e.Key), string(e.Outcome)}
		// Losses are events, and renewals go on.
		if e.Name != distlock.OpLost && !e.Scheduled && seen[one] != n {
			t.Errorf("%d spans of %+v, want %d", seen[one], e, n)
		}
	}
	for _, w := range scene.Waits {
		if !slices.Contains(links[w.Trace], w.Holder.Trace) {
			t.Errorf("the trace %s has the links %v, want one to the holder of %+v", w.Trace, links[w.Trace], w)
		}
	}
	outcomes := make(map[distlock.Outcome]int)
	for e, n := range scene.Operations {
		outcomes[e.Outcome] += n
	}
	for _, o := range []distlock.Outcome{distlock.OutcomeAcquired, distlock.OutcomeDone, distlock.OutcomeBusy,
		distlock.OutcomeTimeout, distlock.OutcomeCancelled, distlock.OutcomeUnavailable, distlock.OutcomeRefused,
		distlock.OutcomeUnknown, distlock.OutcomeLost, distlock.OutcomeFailed} {
		if outcomes[o] == 0 {
			t.Errorf("no operation has the outcome %s", o)
		}
	}
	for _, h := range []distlock.Handoff{distlock.HandoffNone, distlock.HandoffLocal, distlock.HandoffRemote} {
		if handoffs[string(h)] == 0 {
			t.Errorf("no handoff is %s", h)
		}
	}
	if err := scene.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, message := range []string{incidents.LineLost, incidents.LineOutage,
		incidents.LineNotReleased, incidents.LinePolls, incidents.LinePanic} {
		if !strings.Contains(log.String(), message) {
			t.Errorf("no line %q in\n%s", message, log.String())
		}
	}
	if left, err := server.Do("KEYS", "*"); err != nil || left != "" {
		t.Errorf("the scene has left %q, %v", left, err)
	}
}
