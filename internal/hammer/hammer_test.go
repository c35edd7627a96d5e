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

	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/internal/watch"
)

func TestMain(m *testing.M) { watch.VerifyTestMain(m) }

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
				if _, said, ok := strings.Cut(line, ".go:"); ok {
					t.Logf("process %d: %s", n, strings.TrimSpace(said))
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

// nothingLeft checks that the lock server keeps counters and marks of cancelled acquisitions alone, and these for a time.
func nothingLeft(t *testing.T, locks *testservers.Redis) {
	t.Helper()
	keys, err := locks.Do("KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	counters := 0
	for _, key := range strings.Fields(keys) {
		left, err := locks.Do("PTTL", key)
		if left == "-2" { // it has just expired
			continue
		}
		kind := key[strings.Index(key, "}:")+2:]
		if kind == "fence" {
			counters++
		}
		if kind != "fence" && !strings.HasPrefix(kind, "void:") || strings.HasPrefix(left, "-") || err != nil {
			t.Errorf("%s is left, and expires in %s ms; %v", key, left, err)
		}
	}
	if counters != keysInUse {
		t.Errorf("%d locks have a counter, want %d: is this the server?", counters, keysInUse)
	}
}
