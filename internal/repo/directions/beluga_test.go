package directions

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const beluga = "github.com/lookatitude/beluga-ai/"

// belugas are the modules that may import Beluga.
var belugas = []string{"examples/beluga", "lockedmemory/belugamemory"}

// TestBeluga_isNotInTheRootsModuleGraph looks at what is required, not only at what is imported: who uses the lock alone must be able to
// build it where Beluga cannot be had.
func TestBeluga_isNotInTheRootsModuleGraph(t *testing.T) {
	cmd := exec.Command("go", "mod", "graph")
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod graph: %v", err)
	}
	if !strings.Contains(string(out), "github.com/redis/go-redis/v9@") {
		t.Fatalf("the graph does not name go-redis, so this is not the root's:\n%s", out)
	}
	for edge := range strings.Lines(string(out)) {
		if strings.Contains(edge, beluga) {
			t.Errorf("the module graph has %s", edge)
		}
	}
}

// TestBeluga_isImportedByItsModulesAlone reads every file of every module, whatever its build tags.
func TestBeluga_isImportedByItsModulesAlone(t *testing.T) {
	const root = "../../.."
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
			if hidden || entry.Name() == "testdata" || slices.Contains(belugas, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			if imported, _ := strconv.Unquote(spec.Path.Value); strings.HasPrefix(imported, beluga) {
				t.Errorf("%s imports %s; only %q may", name, imported, belugas)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("%d files were found", files)
	}
}
