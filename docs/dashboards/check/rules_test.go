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
		fired := map[string]int{}
		for _, r := range test.Rules {
			fired[r.Alert] += len(r.Fired)
		}
		for alert, n := range fired {
			fires[alert], silent[alert] = fires[alert] || n > 0, silent[alert] || n == 0
		}
	}
	for _, r := range readRules(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: a test in which it fires: %t, a test in which it is silent: %t", r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
}
