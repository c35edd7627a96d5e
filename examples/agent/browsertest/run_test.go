//go:build browser

package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// run is what a run of the example has shown.
type run struct {
	page     string // HTML
	terminal string
}

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

// begin starts the example with -report. The function that begin returns waits for its end.
func begin(t *testing.T, args ...string) func() *run {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	file := filepath.Join(t.TempDir(), "report.html")
	cmd := exec.CommandContext(ctx, program, append(args, "-report", file)...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() *run {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("the example failed: %v\n%s", err, &out)
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return &run{string(page), out.String()}
	}
}

var cell = regexp.MustCompile(`(?m)^│ (.*?) +│ +(.*?) +│ +(.*?) +│ +(.*?) +│$`)

// table returns the rows of the table on the terminal.
func (r *run) table() (rows [][]string) {
	for _, m := range cell.FindAllStringSubmatch(r.terminal, -1) {
		if m[1] != "" {
			rows = append(rows, m[1:])
		}
	}
	return rows
}

// values returns the figures of the row whose title begins so, one of each run.
func (r *run) values(title string) []string {
	for _, row := range r.table() {
		if strings.HasPrefix(row[0], title) {
			return row[1:]
		}
	}
	return make([]string, 3)
}

// numbers returns the figures of a row, 0 for a run that has none.
func (r *run) numbers(title string) (all [3]float64) {
	for i, value := range r.values(title) {
		_, _ = fmt.Sscanf(value, "%f", &all[i])
	}
	return all
}

// paragraphs returns the texts below the table, without their line breaks.
func (r *run) paragraphs() string {
	lines := slices.DeleteFunc(strings.Split(r.terminal, "\n"), func(line string) bool { return strings.ContainsAny(line, "│├╭╰") })
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}
