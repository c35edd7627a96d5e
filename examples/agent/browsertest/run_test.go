//go:build browser

package browsertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// build makes the example, once.
var build = sync.OnceValues(func() (program string, err error) {
	dir, err := os.MkdirTemp("", "belugalock-browsertest-")
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	return program, cmd.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, _ := build(); program != "" {
		_ = os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// example runs the example with -report, and returns the page.
func example(t *testing.T, args ...string) (page string) {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "report.html")
	cmd := exec.CommandContext(ctx, program, append(args, "-report", file)...)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the example failed: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
