package recipetest

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// StartInstances starts a program of examples/internal/instances, and returns the address of its balancer
// once both instances listen. The test ends the program by SIGTERM.
func StartInstances(tb testing.TB, args ...string) (p *Process, address string) {
	tb.Helper()
	tb.Cleanup(http.DefaultClient.CloseIdleConnections)
	p = Start(tb, append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	tb.Cleanup(func() {
		_ = p.Signal(syscall.SIGTERM)
		_ = p.Wait()
	})
	return p, p.Await("listening on http://")
}

// Tour returns the lines of a tour, and the error of the process after the last one.
func Tour(tb testing.TB, args ...string) (lines []string, err error) {
	tb.Helper()
	p, _ := StartInstances(tb, append(args, "-tour")...)
	err = p.Wait()
	return regexp.MustCompile(`(?m)^[a-z].*$`).FindAllString(p.Output(), -1), err // the log has dates
}

// Readme runs the commands of README.md from the first curl on, in one shell and as printed, at an address in
// the place of localhost:8080. It compares the words that each block prints, in any order, with the output on
// the page.
func Readme(tb testing.TB, address string, blocks int) {
	tb.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		tb.Fatal(err)
	}
	script := "set -e\n"
	var want []string // of each block
	fences := regexp.MustCompile("(?s)```(bash|output)\n(.*?)```")
	for _, block := range fences.FindAllStringSubmatch(string(text), -1) {
		switch {
		case block[1] == "output":
			want[len(want)-1] = block[2]
		case len(want) > 0 || strings.Contains(block[2], "curl"):
			script += strings.ReplaceAll(block[2], "localhost:8080", address) + "echo end of block\n"
			want = append(want, "")
		}
	}
	shell := exec.CommandContext(tb.Context(), "bash", "-c", script)
	shell.Dir = tb.TempDir()
	printed, err := shell.Output()
	if err != nil {
		tb.Fatalf("%v: the commands have printed\n%s", err, printed)
	}
	same := regexp.MustCompile(`instance \d+`).ReplaceAllString(string(printed), "instance 4711")
	got := strings.Split(same, "end of block\n")
	if len(want) != blocks || len(got) != blocks+1 {
		tb.Fatalf("%d blocks of %d have printed\n%s", len(got)-1, len(want), printed)
	}
	for i, text := range want {
		words, wanted := strings.Fields(got[i]), strings.Fields(text)
		slices.Sort(words)
		slices.Sort(wanted)
		if !slices.Equal(words, wanted) {
			tb.Errorf("block %d printed\n%s\nand the page says\n%s", i+1, got[i], text)
		}
	}
}
