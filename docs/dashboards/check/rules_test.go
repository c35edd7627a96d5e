package check

import (
	"os/exec"
	"testing"
)

func TestRules_promtoolAccepts(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"},
		{"check", "config", "prometheus.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		promtool := exec.Command("promtool", args...)
		promtool.Dir = ".."
		if out, err := promtool.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

func TestRules_eachSaysWhatToDo(t *testing.T) {
	for _, r := range readRules(t) {
		if r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
			t.Errorf("%s lacks its summary or its action", r.Alert)
		}
	}
}

// Each rule has a unit test in which it fires, and a series of its own under which it does not.
func TestRules_eachFiresAndIsSilent(t *testing.T) {
	var file struct {
		Tests []struct {
			Name  string
			Rules []struct {
				Alert string `yaml:"alertname"`
				Fired []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, "../alerts_test.yml", &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		never := map[string]bool{} // the alerts that do not fire in this test
		for _, r := range test.Rules {
			never[r.Alert] = len(r.Fired) == 0 && !fired(never, r.Alert)
			fires[r.Alert] = fires[r.Alert] || len(r.Fired) > 0
		}
		for alert, is := range never {
			silent[alert] = silent[alert] || is
		}
	}
	for _, r := range readRules(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: a test in which it fires: %t, a test in which it is silent: %t", r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
}

// fired reports whether an earlier line of the test expects the alert.
func fired(never map[string]bool, alert string) bool {
	silent, seen := never[alert]
	return seen && !silent
}
