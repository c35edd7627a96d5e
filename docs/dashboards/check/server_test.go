package check

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	limit    = time.Minute // for everything that the tests wait for
	interval = "500ms"     // of scrapes and of the evaluation of rules
)

// startPrometheus starts a Prometheus with alerts.yml that scrapes the targets, and returns once it is
// ready.
func startPrometheus(t *testing.T, targets []string) promv1.API {
	t.Helper()
	rules, err := filepath.Abs("../alerts.yml")
	must(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: agent, static_configs: [{targets: [%s]}]}]\n", interval, rules, strings.Join(targets, ", "))
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	for range 3 { // another process may take the port
		if api := tryPrometheus(t, dir); api != nil {
			return api
		}
	}
	t.Fatal("Prometheus did not start")
	return nil
}

// tryPrometheus returns nil if Prometheus ends before it is ready.
func tryPrometheus(t *testing.T, dir string) promv1.API {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	at := listener.Addr().String()
	_ = listener.Close()
	client, err := api.NewClient(api.Config{Address: "http://" + at})
	must(t, err)
	prometheus := promv1.NewAPI(client)

	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--enable-feature=exemplar-storage", "--web.listen-address="+at)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	ended := make(chan struct{})
	if err := child.Start(cmd, func() { _ = cmd.Wait(); close(ended) }); err != nil {
		t.Fatalf("%v; scripts/deps.sh prometheus installs Prometheus", err)
	}
	ready := servers.Within(limit, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		_, err := prometheus.Buildinfo(t.Context())
		return err == nil
	})
	select {
	case <-ended:
		t.Logf("Prometheus ended: %s", read(t, log.Name()))
		return nil
	default:
	}
	t.Cleanup(func() {
		client.(api.CloseIdler).CloseIdleConnections()
		_ = cmd.Process.Kill()
		<-ended
		_ = log.Close()
		if t.Failed() {
			text := read(t, log.Name())
			t.Logf("the end of the log of Prometheus:\n%s", text[max(0, len(text)-2000):])
		}
	})
	if !ready {
		t.Fatalf("Prometheus is not ready after %s", limit)
	}
	return prometheus
}
