package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanStore is an OpenTelemetry collector.
type spanStore struct {
	mu    sync.Mutex
	spans []stored
}

type stored struct {
	*tracepb.Span
	service, instance string
	lock              string
}

func (c *spanStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not a trace", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		var about stored
		for _, attribute := range resource.Resource.Attributes {
			switch attribute.Key {
			case "service.name":
				about.service = attribute.Value.GetStringValue()
			case "service.instance.id":
				about.instance = attribute.Value.GetStringValue()
			case "agent.lock":
				about.lock = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				about.Span = span
				c.spans = append(c.spans, about)
			}
		}
	}
}

// check looks at the spans of the run with whole turns.
func (c *spanStore) check(t *testing.T, deliveries int) {
	t.Helper()
	traces, turns := map[string]map[string]stored{}, map[string]bool{}
	for _, s := range c.spans {
		if s.service != "belugalock-agent" || !strings.HasPrefix(s.instance, "instance-") {
			t.Fatalf("a span comes from %q, %q", s.service, s.instance)
		}
		if s.lock != "turn" {
			continue
		}
		trace := string(s.TraceId)
		if traces[trace] == nil {
			traces[trace] = map[string]stored{}
		}
		traces[trace][s.Name] = s
		turns[string(s.SpanId)] = s.Name == "lockedmemory.answer"
	}
	if len(traces) != deliveries {
		t.Errorf("%d traces of the run with whole turns, want one for each of %d turns", len(traces), deliveries)
	}
	links := 0
	for _, trace := range traces {
		for _, name := range []string{"agent.turn", "lockedmemory.answer", "distlock.acquire", "distlock.release"} {
			if trace[name].Span == nil {
				t.Errorf("a trace has no span %s", name)
				return
			}
		}
		if string(trace["lockedmemory.answer"].ParentSpanId) != string(trace["agent.turn"].SpanId) {
			t.Error("lockedmemory.answer is not part of agent.turn")
		}
		for _, name := range []string{"distlock.acquire", "lockedmemory.load", "model", "lockedmemory.save_once", "distlock.release"} {
			if s := trace[name]; s.Span != nil && string(s.ParentSpanId) != string(trace["lockedmemory.answer"].SpanId) {
				t.Errorf("%s is not part of lockedmemory.answer", name)
			}
		}
		for _, link := range trace["distlock.acquire"].Links {
			links++
			if !turns[string(link.SpanId)] || string(link.TraceId) == string(trace["distlock.acquire"].TraceId) {
				t.Error("a link does not lead to another turn")
			}
		}
	}
	if links == 0 {
		t.Error("no turn is linked to the one it waited for")
	}
}

func TestAgent_saysThatTheCollectorCannotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	got := finish(t, program(t, "-turns", "5", "-otlp", server.URL))
	if got.code != 1 || !strings.Contains(got.stderr, server.Listener.Addr().String()) || !strings.Contains(got.stderr, "refused") {
		t.Errorf("exit code %d, want 1 and the cause", got.code)
	}
}

// scrape reads the metrics of a program until it ends. It sends the last page, which is nil if
// there was none.
func scrape(t *testing.T, cmd *exec.Cmd) <-chan map[string]*dto.MetricFamily {
	said, stderr := io.Pipe()
	cmd.Stderr = stderr
	t.Cleanup(func() { _ = stderr.Close() })
	pages := make(chan map[string]*dto.MetricFamily, 1)
	go func() {
		lines := bufio.NewScanner(said)
		lines.Scan()
		url, ok := strings.CutPrefix(lines.Text(), "metrics: ")
		go func() { _, _ = io.Copy(io.Discard, said) }()
		var last map[string]*dto.MetricFamily
		for ok {
			parser := expfmt.NewTextParser(model.LegacyValidation)
			response, err := http.Get(url)
			if err != nil {
				break // the program has ended
			}
			page, err := parser.TextToMetricFamilies(response.Body)
			_ = response.Body.Close()
			if err != nil {
				break
			}
			last = page
			time.Sleep(50 * time.Millisecond)
		}
		pages <- last
	}()
	return pages
}

// checkMetrics compares the metrics of the run with a lock around Save, which has ended, with its
// spans.
func (c *spanStore) checkMetrics(t *testing.T, page map[string]*dto.MetricFamily) {
	t.Helper()
	acquires := map[string]uint64{}
	for _, s := range c.spans {
		if s.Name == "distlock.acquire" {
			acquires[s.lock+" "+s.instance]++
		}
	}
	counts, exported := map[string]uint64{}, page["distlock_acquire_duration_seconds"]
	for _, m := range exported.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		counts[labels["agent_lock"]+" "+labels["service_instance_id"]] += m.Histogram.GetSampleCount()
	}
	for number := range 4 {
		instance := fmt.Sprint(" instance-", number+1)
		if n := acquires["save"+instance]; n == 0 || counts["save"+instance] != n {
			t.Errorf("the metrics count %d acquires of%s, the spans %d", counts["save"+instance], instance, n)
		}
		if counts["turn"+instance] == 0 {
			t.Errorf("the metrics count no acquire of%s in the last run", instance)
		}
	}
}
