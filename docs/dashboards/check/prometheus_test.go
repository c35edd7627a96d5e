package check

import (
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9/logging"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/internal/test/incidents"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/tracing"
)

var (
	plays  = flag.Int("plays", 2, "how often the incidents are played: an increase needs a sample from before")
	record = flag.String("record", "", "the file that receives the data of all panels, which a test of bench/internal/chart draws")
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis
	leakcheck.VerifyTestMain(m)
}

// serve serves the metrics of an instance, as an application does, and returns its telemetry.
func serve(t *testing.T) (incidents.Telemetry, string) {
	t.Helper()
	spans := sdktrace.NewTracerProvider()
	observer, metrics, err := metered(spans)
	must(t, err)
	site := httptest.NewServer(metrics)
	t.Cleanup(site.Close)
	return incidents.Telemetry{Observer: observer, Tracer: spans.Tracer("application")},
		strings.TrimPrefix(site.URL, "http://")
}

// metered is the code of the page README.md.
func metered(spans *sdktrace.TracerProvider) (*tracing.Tracing, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry)) // go.opentelemetry.io/otel/exporters/prometheus
	if err != nil {
		return nil, nil, err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	observer, err := tracing.New(tracing.WithTracerProvider(spans), tracing.WithMeterProvider(meters))
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return observer, metrics, err
}

// run is a Prometheus that has scraped the metrics of incidents.
type run struct {
	promv1.API
	began time.Time
	scene *incidents.Scene
}

// play plays the incidents. Holds get longer until the middle of the run, then shorter.
func play(t *testing.T) run {
	t.Helper()
	telemetry, targets := map[string]incidents.Telemetry{}, []string{}
	for _, instance := range incidents.Instances {
		of, target := serve(t)
		telemetry[instance], targets = of, append(targets, target)
	}
	r := run{API: startPrometheus(t, targets), began: time.Now()}
	redis := servers.StartRedis(t)
	stale := 0
	for n := range *plays {
		scene, err := incidents.Play(t, redis.Addr(), time.Duration(min(n+1, *plays-n))*time.Second,
			func(instance string) incidents.Telemetry { return telemetry[instance] })
		must(t, err)
		r.scene = scene
		stale += scene.StaleWrites
		wait(t, fmt.Sprintf("the stale writes of scene %d are scraped", n+1), func() string {
			got := r.value(t, "sum(sessionstore_stale_writes_total)")
			return unless(int(got) == stale, "%v of %d", got, stale)
		})
		if n < *plays-1 {
			r.close(t)
		}
	}
	return r
}

// close ends the scene, with its stuck holder and the queue behind it.
func (r run) close(t *testing.T) {
	must(t, r.scene.Close(t.Context()))
	for _, name := range []string{"distlock_waiters", "distlock_held"} {
		wait(t, name+" returns to zero", func() string {
			left := r.value(t, "sum("+name+")")
			return unless(left == 0, "%v are left", left)
		})
	}
}

// wait polls until problem returns nothing.
func wait(t *testing.T, what string, problem func() string) {
	t.Helper()
	last := ""
	if !servers.Within(limit, func() bool { last = problem(); return last == "" }) {
		t.Fatalf("%s: %s", what, last)
	}
}

func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func (r run) value(t *testing.T, query string) float64 {
	t.Helper()
	for _, sample := range r.query(t, query) {
		return float64(sample.Value)
	}
	return math.NaN()
}

func (r run) query(t *testing.T, query string) model.Vector {
	t.Helper()
	value, warnings, infos, err := r.Query(t.Context(), query, time.Time{})
	if err != nil || len(warnings) > 0 || len(infos) > 0 {
		t.Fatalf("%s: %v, %q, %q", query, err, warnings, infos)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		t.Fatalf("%s is a %s, want a vector", query, value.Type())
	}
	return vector
}

// returns fails the test unless the query returns a number in the end.
func (r run) returns(t *testing.T, query string) {
	t.Helper()
	wait(t, query, func() string {
		for _, sample := range r.query(t, query) {
			if !math.IsNaN(float64(sample.Value)) {
				return ""
			}
		}
		return "no data"
	})
}

// TestPrometheus is one test, because its parts share a run.
func TestPrometheus(t *testing.T) {
	r := play(t)
	t.Run("eachPanelShowsData", r.panelsShowData)
	t.Run("eachOperandOfAnAlertHasData", r.alertsHaveData)
	t.Run("alertsOfTheIncidentsFire", r.alertsFire)
	t.Run("exemplarLeadsToAWaiter", r.exemplarLeadsToAWaiter)
	t.Run("seriesAreFew", r.seriesAreFew)
	if *record != "" {
		r.write(t, *record)
	}
	r.close(t)
}

// filled returns a query of the dashboard with values for the variables.
func filled(query, window string) string {
	return strings.NewReplacer("$job", ".+", "$instance", ".+", "$backend", ".+", "$__rate_interval", window).Replace(query)
}

func (r run) panelsShowData(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			r.returns(t, filled(q.Expr, "1m"))
		}
	}
	for _, label := range []model.LabelName{"job", "instance", "distlock_backend"} {
		values, _, _, err := r.LabelValues(t.Context(), string(label), []string{"distlock_waiters"}, time.Time{}, time.Now())
		if err != nil || len(values) == 0 {
			t.Errorf("the variable of %s has no values: %v", label, err)
		}
	}
}

var (
	operators = regexp.MustCompile(`\bunless\b|\band\b|>`)
	number    = regexp.MustCompile(`^[0-9.]+$`)
	factor    = regexp.MustCompile(`^[0-9.]+ \*`)
)

// alertsHaveData runs the operands of the comparisons: a comparison that is false has no data.
func (r run) alertsHaveData(t *testing.T) {
	for _, rule := range readRules(t) {
		// No sample is 15 minutes old.
		expr := strings.ReplaceAll(rule.Expr, "offset 15m", "offset 5s")
		for _, operand := range operators.Split(expr, -1) {
			if operand = strings.TrimSpace(operand); !number.MatchString(operand) {
				r.returns(t, factor.ReplaceAllString(operand, ""))
			}
		}
	}
}

// The scene has lost leases and stale writes, whose alerts have no delay.
func (r run) alertsFire(t *testing.T) {
	for _, name := range []string{"BelugalockLeaseLost", "BelugalockStaleWrites"} {
		r.returns(t, fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing", job="agent", distlock_backend="redis"}`, name))
	}
	groups, err := r.Rules(t.Context(), nil)
	must(t, err)
	for _, group := range groups.Groups {
		for _, one := range group.Rules {
			rule := one.(promv1.AlertingRule)
			if rule.Health != promv1.RuleHealthGood {
				t.Errorf("%s: %s", rule.Name, rule.LastError)
			}
			for _, alert := range rule.Alerts {
				if text := string(alert.Annotations["summary"]); text == "" || strings.Contains(text, "error") {
					t.Errorf("%s: its summary is %q", rule.Name, text)
				}
			}
		}
	}
}

func (r run) exemplarLeadsToAWaiter(t *testing.T) {
	var waiters []string
	for _, w := range r.scene.Waits {
		waiters = append(waiters, w.Trace.String())
	}
	wait(t, "an exemplar", func() string {
		found, err := r.QueryExemplars(t.Context(), "distlock_acquire_duration_seconds_bucket", time.Now().Add(-time.Hour), time.Now())
		must(t, err)
		for _, series := range found {
			for _, exemplar := range series.Exemplars {
				if slices.Contains(waiters, string(exemplar.Labels["trace_id"])) {
					return ""
				}
			}
		}
		return fmt.Sprintf("%d series have exemplars, none of the waiters %q", len(found), waiters)
	})
}

// A backend has at most 24 attribute sets in each process. A histogram counts as one.
func (r run) seriesAreFew(t *testing.T) {
	sets := r.query(t, `count by (instance, distlock_backend) ({__name__=~"(distlock|sessionstore|lockedmemory)_.+", __name__!~".+_(bucket|sum)"})`)
	if len(sets) != len(incidents.Instances) {
		t.Errorf("%d instances have metrics, want %d", len(sets), len(incidents.Instances))
	}
	for _, s := range sets {
		if s.Value > 24 {
			t.Errorf("%v has %v attribute sets, want 24 at most", s.Metric, s.Value)
		}
	}
}
