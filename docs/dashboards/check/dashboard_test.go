package check

import (
	"regexp"
	"strings"
	"testing"
)

var (
	selector = regexp.MustCompile(`[a-z_]+\{[^}]*\}`)
	chosen   = `{job=~"$job", instance=~"$instance", distlock_backend=~"$backend"`
)

func TestDashboard_panelsAreWhole(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		if p.Title == "" || !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%q lacks its title, description, unit or queries", p.Title)
		}
		for _, q := range p.Targets {
			if q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" || q.LegendFormat == "" {
				t.Errorf("%s: %q lacks its data source or its legend", p.Title, q.Expr)
			}
			found := selector.FindAllString(q.Expr, -1)
			if len(found) == 0 {
				t.Errorf("%s: %q selects no metric", p.Title, q.Expr)
			}
			for _, s := range found {
				if !strings.Contains(s, chosen) {
					t.Errorf("%s: %s does not select by the variables of the dashboard", p.Title, s)
				}
			}
		}
	}
}

func TestDashboard_panelsDoNotOverlap(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s ends in column %d of 24", p.Title, p.GridPos.X+p.GridPos.W)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
}

func TestDashboard_showsEveryMetric(t *testing.T) {
	queries, names := "", ""
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			queries += q.Expr + "\n"
		}
	}
	for _, name := range documented(t) {
		if !strings.Contains(queries, name+"{") {
			t.Errorf("no panel shows %s", name)
		}
	}
	for _, v := range readDashboard(t).Templating.List {
		names += v.Name + " "
	}
	if names != "datasource job instance backend " {
		t.Errorf("the variables are %q, and not those of the queries", names)
	}
}

func TestREADME_explainsEachPanelAndAlert(t *testing.T) {
	text := read(t, "../README.md")
	for _, p := range readDashboard(t).Panels {
		if !strings.Contains(text, "\n| "+p.Title+" |") {
			t.Errorf("no row explains the panel %q", p.Title)
		}
	}
	for _, r := range readRules(t) {
		if !strings.Contains(text, "\n### "+r.Alert+"\n") {
			t.Errorf("no part explains the alert %s", r.Alert)
		}
	}
}
