package check

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/belugalock/belugalock/internal/repo/docs"
)

// dashboard is the part of belugalock.json that the tests look at.
type dashboard struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []panel
}

type panel struct {
	Title, Description string
	GridPos            struct{ X, Y, W, H int }
	FieldConfig        struct{ Defaults struct{ Unit string } }
	Targets            []target
}

type target struct {
	Datasource         struct{ Type, UID string }
	Expr, LegendFormat string
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	must(t, json.Unmarshal([]byte(read(t, "../belugalock.json")), &d))
	return d
}

// rule is one alert of alerts.yml.
type rule struct {
	Alert, Expr string
	Annotations map[string]string
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	readYAML(t, "../alerts.yml", &file)
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

func readYAML(t *testing.T, name string, v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, name)), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}

// documented returns the metrics of the how-to as Prometheus names them.
func documented(t *testing.T) (names []string) {
	t.Helper()
	for _, row := range docs.Metrics.Table(t) {
		name := strings.ReplaceAll(row[0], ".", "_")
		switch kind, _, _ := strings.Cut(row[1], ","); kind {
		case "counter":
			name += "_total"
		case "histogram":
			name += "_seconds_bucket"
		}
		names = append(names, name)
	}
	if len(names) < 8 {
		t.Fatalf("%s has the metrics %q, want 8 at least", docs.Metrics.Page, names)
	}
	return names
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
