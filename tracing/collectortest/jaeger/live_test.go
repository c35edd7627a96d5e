//go:build jaeger

package jaeger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/incidents"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/tracing"
)

const service = "belugalock-incidents"

// A Jaeger that received a contended run shows each turn that waited, and the span that its link leads to.
func TestJaeger_linksOfWaitersResolve(t *testing.T) {
	query, err := url.Parse(os.Getenv("JAEGER"))
	if err != nil || query.Host == "" {
		t.Fatalf("JAEGER is %q, but must be the address of Jaeger's page, as http://localhost:16686", os.Getenv("JAEGER"))
	}
	otlp := os.Getenv("OTLP")
	if otlp == "" {
		otlp = "http://" + query.Hostname() + ":4318"
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	// The exporters log a failure, and go on.
	response, err := client.Post(otlp+"/v1/traces", "application/x-protobuf", http.NoBody)
	if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s receives no spans, %v: set OTLP to the address at which Jaeger receives OTLP over HTTP", otlp, err)
	}
	report := play(t, client, otlp)
	for _, w := range report.Waits {
		// An operator searches for the session.
		key, err := json.Marshal(map[string]string{"lock_key": distlock.KeyHashed.Show(w.Key)})
		if err != nil {
			t.Fatal(err)
		}
		search := query.JoinPath("api/traces")
		search.RawQuery = url.Values{"service": {service}, "operation": {"distlock.acquire"}, "tags": {string(key)},
			"limit": {"200"}, "lookback": {"1h"}}.Encode()
		waiter := await(t, client, search, "", func(all []trace) error { return contains(all, w.Trace.String()) })
		for _, one := range waiter {
			if !sameID(one.TraceID, w.Trace.String()) {
				continue
			}
			call, err := one.contention()
			if err != nil || call.instance != w.Instance || call.outcome != string(w.Outcome) ||
				call.waited < w.AtLeast || w.AtMost < call.waited {
				t.Errorf("the trace of the waiter shows %+v, %v, want %+v", call, err, w)
				continue
			}
			name := ""
			if w.Key == incidents.Slow {
				name = "holder.json"
				await(t, client, query.JoinPath("api/traces", w.Trace.String()), "waiter.json",
					func(all []trace) error { return contains(all, w.Trace.String()) })
			}
			await(t, client, query.JoinPath("api/traces", call.holder.TraceID), name, func(all []trace) error {
				instance, err := call.holder.resolve(all)
				if err == nil && (instance != w.Holder.Instance || !sameID(call.holder.TraceID, w.Holder.Trace.String())) {
					err = fmt.Errorf("the link leads to %s in %s, want %+v", instance, call.holder.TraceID, w.Holder)
				}
				return err
			})
			t.Logf("%s: %s waited %s for %s and ended as %s; the link resolves to the span %s", w.Key, call.instance,
				call.waited.Round(time.Millisecond), w.Holder.Instance, call.outcome, call.holder.SpanID)
		}
	}
}

// play sends the spans of a scene, from its beginning to its end.
func play(t *testing.T, client *http.Client, otlp string) incidents.Report {
	t.Helper()
	var providers []*sdktrace.TracerProvider
	scene, err := incidents.Play(t.Context(), servers.SharedServer().Addr(), incidents.Options{
		Telemetry: func(instance string) incidents.Telemetry {
			exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(otlp+"/v1/traces"),
				otlptracehttp.WithHTTPClient(client))
			if err != nil {
				t.Fatal(err)
			}
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(
				resource.NewSchemaless(attribute.String("service.name", service),
					attribute.String("service.instance.id", instance))))
			providers = append(providers, provider)
			observer, err := tracing.New(tracing.WithTracerProvider(provider))
			if err != nil {
				t.Fatal(err)
			}
			return incidents.Telemetry{Observer: observer, Tracer: provider.Tracer("application")}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = scene.Close(t.Context())
	for _, provider := range providers {
		err = errors.Join(err, provider.Shutdown(context.Background()))
	}
	if err != nil {
		t.Fatalf("send the spans to %s: %v", otlp, err)
	}
	return scene.Report
}

// await asks until an answer is as wanted, for at most 30 s: Jaeger stores spans a moment after it has
// received them. With RECORD set, it writes the answer to a file there.
func await(t *testing.T, client *http.Client, address *url.URL, record string,
	wanted func([]trace) error) (traces []trace) {
	t.Helper()
	var body []byte
	var err error
	if !servers.Within(30*time.Second, func() bool {
		if body, err = get(t.Context(), client, address); err == nil {
			if traces, err = read(body); err == nil {
				err = wanted(traces)
			}
		}
		return err == nil
	}) {
		t.Fatalf("%s: %v", address, err)
	}
	if dir := os.Getenv("RECORD"); dir != "" && record != "" {
		if err := os.WriteFile(filepath.Join(dir, record), body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return traces
}

func get(ctx context.Context, client *http.Client, address *url.URL) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

func contains(traces []trace, id string) error {
	for _, t := range traces {
		if sameID(t.TraceID, id) {
			return nil
		}
	}
	return fmt.Errorf("the trace %s is not among %d", id, len(traces))
}
