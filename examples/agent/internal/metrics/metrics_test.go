package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pageOf returns the last Line of an instance that counts up to n.
func pageOf(t *testing.T, instance string, n int64) []byte {
	t.Helper()
	var lines bytes.Buffer
	p, err := NewProvider(&lines, resource.NewSchemaless(attribute.String("service.instance.id", instance)))
	if err != nil {
		t.Fatal(err)
	}
	counter, err := p.Meter("test").Int64Counter("things.lost")
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	counter.Add(trace.ContextWithSpanContext(context.Background(), span), n)
	if err := p.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	var last Line
	for decoder := json.NewDecoder(&lines); decoder.More(); {
		if err := decoder.Decode(&last); err != nil {
			t.Fatal(err)
		}
	}
	return last.Metrics
}

func get(t *testing.T, s *Server, accept string) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, s.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, error %v: %s", response.Status, err, body)
	}
	return string(body)
}

func TestServer_showsTheLastPageOfEachInstance(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, put := range []struct {
		instance string
		n        int64
	}{{"instance-1", 7}, {"instance-2", 5}, {"instance-1", 3}} { // instance-1 has started again
		if err := s.Put(put.instance, pageOf(t, put.instance, put.n)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(get(t, s, "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8")) {
		if strings.HasPrefix(line, "things") {
			got = append(got, strings.Split(line, " # ")[0])
			if !strings.Contains(line, `trace_id="01000000000000000000000000000000"`) {
				t.Errorf("a line has no exemplar: %s", line)
			}
		}
	}
	for i, want := range []string{`service_instance_id="instance-1"} 3.0`, `service_instance_id="instance-2"} 5.0`} {
		if len(got) != 2 || !strings.HasPrefix(got[i], "things_lost_total{") || !strings.HasSuffix(got[i], want) {
			t.Errorf("the series are %q", got)
		}
	}
	if text := get(t, s, ""); strings.Count(text, "\nthings_lost_total{") != 2 {
		t.Errorf("the plain text is %s", text)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
