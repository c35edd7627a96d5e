//go:build unix

package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// checkChaos is what every good run with chaos shows.
func checkChaos(t *testing.T, got outcome, messages int) {
	t.Helper()
	checkReport(t, got, messages)
	killed, paused, again := got.row(t, "instances killed"), got.row(t, "instances paused"), got.row(t, "delivered again")
	for i := range killed {
		if killed[i] != 5 || paused[i] != 5 || again[i] < killed[i] {
			t.Errorf("in run %d, %d were killed, %d paused, and %d messages delivered again", i, killed[i], paused[i], again[i])
		}
	}
	if refused := got.last(t, "stale writes refused"); refused == 0 || refused > paused[2] {
		t.Errorf("the store refused %d stale writes of %d paused instances", refused, paused[2])
	}
	if lost := got.row(t, "lost"); lost[0] == 0 || lost[1] == 0 {
		t.Errorf("%d messages were lost with killed instances without a lock, and %d with a lock around Save alone", lost[0], lost[1])
	}
	if strings.Contains(got.stderr, "WARN") {
		t.Errorf("stderr is\n%s", got.stderr)
	}
}

// chaos are flags of a short run. With so many conversations, some go on beside a paused instance.
var chaos = []string{"-chaos", "-instances", "6", "-sessions", "6", "-turns", "12"}

func TestAgent_S2_chaosDoesNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.html")
	finish := begin(t, program(t, append(chaos, "-report", path)...))
	t.Parallel() // only now: for most of its time the run waits, and takes nothing from others
	checkChaos(t, finish(), 6*12)
	if page, err := os.ReadFile(path); err != nil || !strings.Contains(string(page), "instances killed") {
		t.Errorf("the page does not speak of it; error %v", err)
	}
}

// The command of the page on dashboards, with servers of the test, and fewer turns in more conversations.
func TestAgent_commandOfTheDashboards(t *testing.T) {
	t.Parallel() // not later: the goroutines of its servers may begin beside a test that looks for goroutines
	server := servers.StartRedis(t)
	var store spanStore
	collector := httptest.NewServer(&store)
	defer collector.Close()
	var commands []docs.Command
	for _, c := range docs.Commands(t, "go", "run", "./examples/agent") {
		if c.Page == "docs/dashboards/README.md" {
			commands = append(commands, c)
		}
	}
	if len(commands) != 1 {
		t.Fatalf("the page has the commands %v", commands)
	}
	line := strings.NewReplacer("redis://localhost:6379", server.URL(), "-turns 1000", "-turns 12 -instances 6 -sessions 6",
		":9464", ":0", "http://localhost:4318", collector.URL).Replace(strings.Join(commands[0].Words[3:], " "))
	cmd := program(t, strings.Fields(line)...)
	scraped := scrape(t, cmd)
	checkChaos(t, begin(t, cmd)(), 6*12)
	store.mu.Lock()
	defer store.mu.Unlock()
	if metrics := <-scraped; metrics["distlock_acquire_duration_seconds"] == nil || len(store.spans) == 0 {
		t.Errorf("the program has served the metrics %v, and sent %d spans", metrics, len(store.spans))
	}
}

func TestAgent_S2_Redlock3_chaosKillsANode(t *testing.T) {
	finish := begin(t, program(t, append(chaos, "-lock", "redlock")...))
	t.Parallel() // only now: see above
	got := finish()
	checkChaos(t, got, 6*12)
	if nodes := got.row(t, "lock nodes killed"); nodes != [3]int{0, 0, 1} {
		t.Errorf("%d nodes were killed", nodes)
	}
}
