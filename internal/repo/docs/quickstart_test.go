package docs

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// The commands of the page run in their order, in one shell, in an empty folder. This checkout stands
// in for the newest commit. Servers of the test stand in for those of the reader. The lines of a block
// may come in another order.
func TestQuickstart_commandsPrintTheirOutput(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/quickstart.md")
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	program := strings.Replace(blocks([]Page{page}, "go")[0].text, "(time.Second)", "(50 * time.Millisecond)", 1)
	here := strings.NewReplacer(
		"go get "+modulePath+"@main", "go mod edit -require="+modulePath+"@v0.0.0 -replace="+modulePath+"='"+checkout+"'\n"+
			"cat >main.go <<'END'\n"+program+"END",
		"redis://localhost:6379", servers.StartRedis(t).URL(),
		databaseURL, "'"+servers.SharedPostgres(t).NewDatabase(t).URL()+"'")
	script := ""
	var want []string // of each block
	for _, b := range blocks([]Page{page}, "bash") {
		if !strings.HasPrefix(b.text, "redis-server ") {
			script += here.Replace(b.text) + "echo end of block\n"
			want = append(want, b.output)
		}
	}
	shell := exec.Command("sh", "-e", "-c", script)
	shell.Dir = t.TempDir()
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(string(out), "end of block\n")
	for i, text := range want {
		if !slices.Equal(parts(got[i]), parts(text)) {
			t.Errorf("block %d printed %q, the page says %q", i+1, got[i], text)
		}
	}
}

// parts returns the sorted IDs and answers of an output.
func parts(output string) []string {
	return slices.Sorted(strings.SplitSeq(strings.ReplaceAll(output, ": ", "\n"), "\n"))
}
