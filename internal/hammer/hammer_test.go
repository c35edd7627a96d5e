package hammer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

// workEnv tells a process that it is one of the workers, and what to do.
const workEnv = "BELUGALOCK_HAMMER_WORK"

func TestHammer(t *testing.T) {
	if text := os.Getenv(workEnv); text != "" {
		var w work
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			t.Fatal(err)
		}
		w.run(t)
		return
	}
	processes, goroutines, duration := size(t)
	locks, store := testservers.StartRedis(t), testservers.StartRedis(t)
	text, err := json.Marshal(work{Locks: locks.Addr(), Store: store.Addr(), Goroutines: goroutines, Duration: duration})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration+2*time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for n := range processes {
		running.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.timeout="+(duration+90*time.Second).String(), "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), workEnv+"="+string(text))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v\n%s", n, err, out)
				return
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "_test.go:") {
					t.Logf("process %d: %s", n, strings.TrimSpace(line))
				}
			}
		})
	}
	running.Wait()
	nothingLeft(t, locks)
}

// size is how much to do.
func size(t *testing.T) (processes, goroutines int, duration time.Duration) {
	text := os.Getenv("HAMMER")
	if text == "" {
		return 3, 8, 5 * time.Second
	}
	parts := strings.Split(text, "x")
	if len(parts) == 3 {
		_, wrong1 := fmt.Sscan(parts[0], &processes)
		_, wrong2 := fmt.Sscan(parts[1], &goroutines)
		var wrong3 error
		if duration, wrong3 = time.ParseDuration(parts[2]); errors.Join(wrong1, wrong2, wrong3) == nil && processes > 0 && goroutines > 0 {
			return processes, goroutines, duration
		}
	}
	t.Fatalf("HAMMER is %q: it says processes, goroutines and duration, as in 8x64x5m", text)
	return
}

// nothingLeft checks that the lock server keeps counters and marks of cancelled acquisitions alone, and these for a time. What
// a process could not clean up before it ended goes by itself.
func nothingLeft(t *testing.T, locks *testservers.Redis) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		left := leftovers(t, locks)
		switch {
		case len(left) == 0:
			t.Logf("nothing was left %s after the last process had ended", time.Since(start).Round(time.Millisecond))
			return
		case time.Since(start) > ttl+time.Second:
			t.Errorf("there are left: %s", strings.Join(left, ", "))
			return
		}
	}
}

func leftovers(t *testing.T, locks *testservers.Redis) (left []string) {
	t.Helper()
	keys, err := locks.Do("KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	counters := 0
	for _, key := range strings.Fields(keys) {
		expires, err := locks.Do("PTTL", key)
		if err != nil {
			t.Fatal(err)
		}
		if expires == "-2" { // it has just gone
			continue
		}
		_, kind, _ := strings.Cut(key, "}:")
		if kind == "fence" {
			counters++
		}
		if kind != "fence" && !strings.HasPrefix(kind, "void:") || expires == "-1" {
			left = append(left, fmt.Sprintf("%s, for %s ms", key, expires))
		}
	}
	if counters != keysInUse {
		t.Fatalf("%d locks have a counter, want %d: is this the server?", counters, keysInUse)
	}
	return left
}
