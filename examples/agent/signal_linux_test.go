package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// living returns how many processes of a process group have not ended; one that only waits to be reaped has.
func living(t *testing.T, group int) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		var state string
		var parent, g int
		fields := string(stat[bytes.LastIndexByte(stat, ')')+1:])
		if _, err := fmt.Sscan(fields, &state, &parent, &g); err == nil && g == group && state != "Z" && state != "X" {
			n++
		}
	}
	return n
}

func TestAgent_signalEndsTheProgramAndItsInstances(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal syscall.Signal
		all    bool // as a terminal does, not to the program alone
		clean  bool
	}{
		"Ctrl-C":                      {syscall.SIGINT, true, true},
		"SIGTERM to the program":      {syscall.SIGTERM, false, true},
		"the program is killed alone": {syscall.SIGKILL, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			cmd := program(t, "-lock", server.URL(), "-turns", "10000")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			group := cmd.Process.Pid
			t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
			servers.Await(t, 20*time.Second, "four instances work", func() bool {
				return living(t, group) == 5 && works(server)
			})

			target := group
			if test.all {
				target = -group
			}
			stop, start := leakcheck.Stalls(), time.Now()
			if err := syscall.Kill(target, test.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			servers.Await(t, 20*time.Second, "every process has ended", func() bool { return living(t, group) == 0 })
			if took := time.Since(start) - stop(); took > 3*time.Second {
				t.Errorf("the end took %s", took)
			}
			if !test.clean {
				return
			}
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "agent: interrupted\n") {
				t.Errorf("exit code %d, want 1 and a word about it on stderr:\n%s", code, &stderr)
			}
			if keys, err := server.Do("KEYS", "*"); keys != "" || err != nil {
				t.Errorf("keys are left: %q, error %v", keys, err)
			}
		})
	}
}
