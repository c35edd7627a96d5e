package tracing_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

// collector is the receiving end of OTLP over HTTP.
type collector struct {
	mu    sync.Mutex
	spans map[string]*tracepb.Span // by name
	scope string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.scope = scope.Scope.Name
			for _, span := range scope.Spans {
				c.spans[span.Name] = span
			}
		}
	}
}

// At the collector, the spans of one Save are one trace with the documented attributes.
func TestSave_overOTLP(t *testing.T) {
	c := &collector{spans: make(map[string]*tracepb.Span)}
	server := httptest.NewServer(c)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+"/v1/traces"),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport}))
	must(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	observer, err := tracing.New(tracing.WithTracerProvider(provider))
	must(t, err)
	locker, err := memlock.New(&distlock.Options{Observer: observer, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	memory, err := lockedmemory.New(&nothing{}, locker, lockedmemory.FixedKey(session), nil)
	must(t, err)
	must(t, memory.Save(t.Context(), "q", "a"))
	must(t, locker.Close(t.Context()))
	must(t, provider.Shutdown(context.Background()))

	c.mu.Lock()
	defer c.mu.Unlock()
	save := c.spans["lockedmemory.save"]
	if len(c.spans) != 3 || save == nil || c.scope != tracing.Scope {
		t.Fatalf("received %v of scope %q", c.spans, c.scope)
	}
	for name, want := range map[string]string{
		"lockedmemory.save": "distlock.backend distlock.outcome lock_key",
		"distlock.acquire": "acquired distlock.attempts distlock.backend distlock.fence distlock.handoff distlock.outcome " +
			"distlock.ttl_ms distlock.wait_ms lock_key",
		"distlock.release": "distlock.attempts distlock.backend distlock.fence distlock.outcome lock_key",
	} {
		span := c.spans[name]
		if span == nil || string(span.TraceId) != string(save.TraceId) ||
			name != "lockedmemory.save" && string(span.ParentSpanId) != string(save.SpanId) {
			t.Errorf("%s is not part of the trace: %v", name, span)
			continue
		}
		for _, key := range strings.Fields(want) {
			found := false
			for _, attr := range span.Attributes {
				found = found || attr.Key == key
			}
			if !found {
				t.Errorf("%s has no attribute %s: %v", name, key, span.Attributes)
			}
		}
		if strings.Contains(span.String(), session) {
			t.Errorf("%s shows the session: %v", name, span)
		}
	}
}
