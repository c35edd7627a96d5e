package collectortest

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/incidents"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// question is one row of the page, asked about one run.
type question struct {
	*testing.T
	*collector
	*incidents.Scene
	lines func(message string) []map[string]any
	names map[string]bool // that the answer of the page names, and whether the test has used them
}

// name returns the name of a span, attribute, metric or field. The page has to name it, too.
func (q *question) name(n string) string {
	q.Helper()
	if _, there := q.names[n]; !there {
		q.Errorf("%s does not name `%s` in the answer", docs.Metrics.Page, n)
	}
	q.names[n] = true
	return n
}

var quoted = regexp.MustCompile("`([^`]+)`")

// The received telemetry of a contended run answers each question of the page, with the names that
// the page gives.
func TestCollector_answersTheQuestionsOfThePage(t *testing.T) {
	c := startCollector(t)
	x := &telemetry{t: t, to: c}
	scene, err := incidents.Play(t, servers.SharedServer().Addr(), 2*time.Second, x.of)
	must(t, err)
	t.Cleanup(func() { must(t, scene.Close(context.Background())) })
	x.flush()
	rows := docs.Place{Page: docs.Metrics.Page, Heading: "## Ten questions"}.Table(t)
	if len(rows) != len(answers) {
		t.Errorf("the page has %d questions, and %d have a test", len(rows), len(answers))
	}
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			q := &question{t, c, scene, x.lines, map[string]bool{}}
			for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
				q.names[name[1]] = false
			}
			answer := answers[row[0]]
			if answer == nil {
				t.Fatal("no test answers the question")
			}
			answer(q)
			for name, used := range q.names {
				if !used {
					t.Errorf("the page names `%s`, and the test does not look at it", name)
				}
			}
		})
	}
	t.Run("metrics", func(t *testing.T) { metricsOfThePage(t, c) })
	t.Run("log lines", func(t *testing.T) { linesOfThePage(t, x) })
}

// The metrics that arrive are those of the page, with the kind, unit and attributes there.
func metricsOfThePage(t *testing.T, c *collector) {
	got := make(map[string]string)
	for _, batch := range c.metrics.AllMetrics() {
		for _, resource := range batch.ResourceMetrics().All() {
			for _, scope := range resource.ScopeMetrics().All() {
				for _, m := range scope.Metrics().All() {
					keys := make(map[string]bool)
					for _, p := range pointsOf(m) {
						for key := range p.attributes.All() {
							keys[strings.TrimPrefix(key, "distlock.")] = true
						}
					}
					row := m.Type().String() + ", " + m.Unit() + ", " + strings.Join(slices.Sorted(maps.Keys(keys)), " ")
					got[m.Name()] = max(got[m.Name()], row) // an instance may lack an attribute
				}
			}
		}
	}
	want := make(map[string]string)
	for _, row := range docs.Metrics.Table(t) {
		kind, unit, _ := strings.Cut(row[1], ", ")
		attributes := strings.Fields(strings.NewReplacer("`", "", ",", "", "distlock.", "").Replace(row[2]))
		attributes = append(attributes, "namespace") // the page has this attribute of all metrics once
		slices.Sort(attributes)
		want[row[0]] = map[string]string{"histogram": "Histogram", "counter": "Sum", "up-down counter": "Sum"}[kind] +
			", " + strings.Trim(unit, "`") + ", " + strings.Join(attributes, " ")
	}
	if !maps.Equal(got, want) {
		t.Errorf("received are\n%q\nthe page has\n%q", got, want)
	}
}

// The log lines of the scene have the levels and attributes of the page. A line about a key has a trace.
func linesOfThePage(t *testing.T, x *telemetry) {
	lines := x.lines("")
	if len(lines) < 6 {
		t.Errorf("the log has %d lines", len(lines))
	}
	rows := docs.LogLines.Table(t)
	for _, line := range lines {
		message := line["msg"].(string)
		row := slices.IndexFunc(rows, func(row []string) bool { return strings.HasPrefix(message, row[0]) })
		if row < 0 {
			t.Errorf("%s does not list the line %q", docs.LogLines.Page, message)
			continue
		}
		var want []string
		for _, name := range quoted.FindAllStringSubmatch("`"+strings.Trim(rows[row][2], "`")+"`", -1) {
			want = append(want, name[1])
		}
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(line)), func(name string) bool {
			// These are on all lines, or on those of one handler.
			return slices.Contains([]string{"time", "level", "msg", "instance", "namespace", "trace_id", "span_id",
				"left_out"}, name)
		})
		slices.Sort(want)
		if !slices.Equal(got, want) || line["level"] != rows[row][1] {
			t.Errorf("the line %q has the level %s and %q, the page %s and %q", message, line["level"], got, rows[row][1], want)
		}
		_, traced := line["trace_id"]
		if _, keyed := line["lock_key"]; keyed != traced {
			t.Errorf("the line %q has a key: %t, and a trace: %t", message, keyed, traced)
		}
	}
}

// The program of the page exports the spans and metrics of its lock, and says nothing.
func TestCollector_programOfThePage(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.http)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=one")
	program := docs.Place{Page: docs.Metrics.Page, Heading: "## Switch it on"}.Blocks(t, "go")[0]
	docs.Run(t, docs.Build(t, strings.Replace(program, "localhost:6379", servers.SharedServer().Addr(), 1)))
	acquired := c.spans(named("distlock.acquire"), about("conversation-42"))
	if len(acquired) != 1 || c.sum("one", "distlock.acquire.duration", distlock.OutcomeAcquired) != 1 {
		t.Errorf("received are %d spans, %v", len(acquired), c.points("one", "distlock.acquire.duration"))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
