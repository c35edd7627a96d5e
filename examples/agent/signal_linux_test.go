package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// process is what /proc tells of one.
type process struct {
	pid, state    string
	parent, group int
}

// processes returns all that have not ended; one that only waits to be reaped has.
func processes(t *testing.T) (all []process) {
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
		p := process{pid: filepath.Base(filepath.Dir(file))}
		fields := string(stat[bytes.LastIndexByte(stat, ')')+1:])
		if _, err := fmt.Sscan(fields, &p.state, &p.parent, &p.group); err == nil && p.state != "Z" && p.state != "X" {
			all = append(all, p)
		}
	}
	return all
}

// paused reports whether every thread of a process is stopped. While one still runs, Linux does not
// count the process as stopped, and does not resume it when its process group is orphaned.
func paused(t *testing.T, p process) bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + p.pid + "/task/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")) {
			return false
		}
	}
	return len(threads) > 0
}

// living returns the processes of a process group.
func living(t *testing.T, group int) []process {
	t.Helper()
	return slices.DeleteFunc(processes(t), func(p process) bool { return p.group != group })
}

func TestAgent_leavesNoPausedInstanceBehind(t *testing.T) {
	t.Parallel()
	cmd := program(t, "-chaos", "-turns", "10")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that who inherits the instances does not look after their process groups
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var instances []process
	servers.Await(t, 40*time.Second, "an instance is paused", func() bool {
		instances = slices.DeleteFunc(processes(t), func(p process) bool { return p.parent != cmd.Process.Pid })
		return slices.ContainsFunc(instances, func(p process) bool { return paused(t, p) })
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	stop, start := leakcheck.Stalls(), time.Now()
	servers.Await(t, 20*time.Second, "every instance has ended", func() bool {
		return !slices.ContainsFunc(processes(t), func(p process) bool {
			return slices.ContainsFunc(instances, func(i process) bool { return i.pid == p.pid && i.group == p.group })
		})
	})
	if took := time.Since(start) - stop(); took > 3*time.Second {
		t.Errorf("the end took %s", took)
	}
}

func TestAgent_signalEndsTheProgramAndItsInstances(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal syscall.Signal
		all    bool // as a terminal does, not to the program alone
		clean  bool
	}{
		"Ctrl-C":                      {syscall.SIGINT, true, true},
		"SIGINT to the program":       {syscall.SIGINT, false, true},
		"SIGTERM to the program":      {syscall.SIGTERM, false, true},
		"SIGTERM to all processes":    {syscall.SIGTERM, true, true},
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
				return len(living(t, group)) == 5 && works(server)
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
			servers.Await(t, 20*time.Second, "every process has ended", func() bool { return len(living(t, group)) == 0 })
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
