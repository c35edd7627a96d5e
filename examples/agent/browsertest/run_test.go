//go:build browser

package browsertest

import (
	"context"
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

// example runs the example with -report.
func example(t *testing.T, args ...string) *run {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "report.html")
	cmd := exec.CommandContext(ctx, program, append(args, "-report", file)...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the example failed: %v\n%s", err, out)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &run{string(page), string(out)}
}

var cell = regexp.MustCompile(`(?m)^│ (.*?) +│ +(.*?) +│ +(.*?) +│$`)

// table returns the rows of the table on the terminal, but for its head.
func (r *run) table() (rows [][]string) {
	for _, m := range cell.FindAllStringSubmatch(r.terminal, -1) {
		if m[1] != "" {
			rows = append(rows, m[1:])
		}
	}
	return rows
}

// value returns the right-most figure of a row.
func (r *run) value(title string) string {
	for _, row := range r.table() {
		if row[0] == title {
			return row[2]
		}
	}
	return ""
}

var spanLine = regexp.MustCompile(`(?m)^  (\S+) +│.*│ *(\S+ ms)$`)

// spans returns the spans of the waterfall on the terminal, as in "load 2.1 ms".
func (r *run) spans() (spans []string) {
	for _, m := range spanLine.FindAllStringSubmatch(r.terminal, -1) {
		spans = append(spans, m[1]+" "+m[2])
	}
	return spans
}

// paragraphs returns the texts between the pictures, without their line breaks.
func (r *run) paragraphs() string {
	lines := slices.DeleteFunc(strings.Split(r.terminal, "\n"), func(line string) bool { return strings.ContainsAny(line, "│├╭╰") })
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}
