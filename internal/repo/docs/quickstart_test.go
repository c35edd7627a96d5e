package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/testservers"
)

// The commands of the page run in their order, in one shell, in an empty folder. This checkout stands
// in for the newest commit. Redis starts with the arguments of the page, on a free port. A database of
// the test stands in for that of the reader. The turns of a block may run in another order: the IDs and
// the answers are those of the page.
func TestQuickstart_commandsPrintTheirOutput(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/quickstart.md")
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	program := page.Programs()[0].Source
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, []byte(strings.Replace(program, "(time.Second)", "(50 * time.Millisecond)", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	const module = "github.com/belugalock/belugalock"
	here := strings.NewReplacer(
		"go get "+module+"@main", "go mod edit -require="+module+"@v0.0.0 -replace="+module+"='"+checkout+"'\ncp '"+main+"' .",
		"redis://localhost:6379", testservers.StartRedis(t, serverArgs(t, page)...).URL(),
		databaseURL, "'"+testservers.SharedPostgres(t).NewDatabase(t).URL()+"'")
	script := "set -e\n"
	var want []string // of each block
	for _, b := range page.blocks {
		switch {
		case strings.HasPrefix(b.text, "redis-server "):
		case b.lang == "bash":
			script += here.Replace(b.text) + "echo end of block\n"
			want = append(want, "")
		case b.lang == "output":
			want[len(want)-1] = b.text
		}
	}
	shell := exec.Command("sh", "-c", script)
	shell.Dir = t.TempDir()
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(string(out), "end of block\n")
	for i, text := range want {
		ids, answers := columns(got[i])
		wantedIDs, wanted := columns(text)
		if !slices.Equal(ids, wantedIDs) || !slices.Equal(answers, wanted) {
			t.Errorf("block %d printed %q, the page says %q", i+1, got[i], text)
		}
	}
}

// serverArgs returns the arguments of the first redis-server on a page, without those that a test chooses.
func serverArgs(t *testing.T, page Page) (args []string) {
	t.Helper()
	for _, c := range page.commands() {
		if c.Words[0] != "redis-server" {
			continue
		}
		for i := 1; i+1 < len(c.Words); i += 2 {
			if !slices.Contains([]string{"--port", "--dir", "--daemonize"}, c.Words[i]) {
				args = append(args, c.Words[i], c.Words[i+1])
			}
		}
		return args
	}
	t.Fatalf("%s starts no Redis", page.name)
	return nil
}

// columns returns the sorted IDs of an output, and its sorted answers.
func columns(output string) (ids, answers []string) {
	for line := range strings.Lines(output) {
		id, answer, _ := strings.Cut(line, ": ")
		ids, answers = append(ids, id), append(answers, answer)
	}
	slices.Sort(ids)
	slices.Sort(answers)
	return ids, answers
}
