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
// in for the newest commit, and servers of the test for those of the page. The model thinks for
// less time, so answers may be printed in another order.
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
		"redis-server --daemonize yes", "",
		"redis://localhost:6379", testservers.SharedRedis(t).URL(),
		databaseURL, "'"+testservers.SharedPostgres(t).NewDatabase(t).URL()+"'")
	script := "set -e\n"
	var want []string // of each block
	for _, b := range page.blocks {
		switch b.lang {
		case "bash":
			script += here.Replace(b.text) + "echo end of block\n"
			want = append(want, "")
		case "output":
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
		lines := slices.Sorted(strings.Lines(got[i]))
		if wanted := slices.Sorted(strings.Lines(text)); !slices.Equal(lines, wanted) {
			t.Errorf("block %d printed %q, the page says %q", i+1, lines, wanted)
		}
	}
}
