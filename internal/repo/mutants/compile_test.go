package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	luaparse "github.com/yuin/gopher-lua/parse"
)

// listed is a package as go list shows it.
type listed struct {
	Dir, ImportPath string
	Export          string // the file of its compiled declarations
	GoFiles         []string
}

// The files of all mutants compile: an edit of a line beside a guard can leave a variable without a use.
// What a mutant breaks in another file of its package, make mutants finds.
func TestMutants_compile(t *testing.T) {
	t.Parallel()
	mutants, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	fset, others := token.NewFileSet(), make(map[string]*ast.File)
	spaces := []workspace{
		list(t, fset, "contract.work", "./...", "./lockedmemory/belugamemory/..."),
		list(t, fset, "adk.work", "./adksession"),
	}
	for _, m := range mutants {
		if ext := filepath.Ext(m.file); ext != ".lua" && ext != ".go" || strings.HasSuffix(m.file, "_test.go") {
			continue
		}
		name := absolute(t, filepath.FromSlash(m.file))
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := m.apply(string(text))
		if err != nil {
			continue // TestMutants_fitTheCode says so
		}
		if filepath.Ext(m.file) == ".lua" {
			if _, err := luaparse.Parse(strings.NewReader(changed), m.file); err != nil {
				t.Errorf("%s: %s does not compile: %s", m.from, m.name, err)
			}
			continue
		}
		in := slices.IndexFunc(spaces, func(w workspace) bool { return w.packages[filepath.Dir(name)] != nil })
		if in < 0 {
			t.Fatalf("%s: list does not have the package of %s", m.from, m.file)
		}
		p := spaces[in].packages[filepath.Dir(name)]
		files := []*ast.File{parseGo(t, fset, name, changed)}
		for _, other := range p.GoFiles {
			other = filepath.Join(p.Dir, other)
			if other == name {
				continue
			}
			if others[other] == nil {
				others[other] = declarations(parseGo(t, fset, other, nil))
			}
			files = append(files, others[other])
		}
		config := types.Config{Importer: spaces[in].compiled, Error: func(err error) {
			// The other files lack bodies, so they import what they do not use.
			if wrong := (types.Error{}); errors.As(err, &wrong) && fset.Position(wrong.Pos).Filename == name {
				t.Errorf("%s: %s does not compile: %s", m.from, m.name, wrong.Msg)
			}
		}}
		_, _ = config.Check(p.ImportPath, fset, files, nil)
	}
}

// workspace has the packages of this module and of those below it that have mutants by their directories,
// and the compiled declarations of all that they import.
type workspace struct {
	packages map[string]*listed
	compiled types.Importer
}

// list returns the packages that a workspace builds.
func list(t *testing.T, fset *token.FileSet, work string, patterns ...string) workspace {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles"},
		patterns...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK="+absolute(t, work))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages, exports := make(map[string]*listed), make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		p := new(listed)
		if err := d.Decode(p); err != nil {
			t.Fatal(err)
		}
		packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	return workspace{packages, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	name, err := filepath.Abs(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func parseGo(t *testing.T, fset *token.FileSet, name string, text any) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// declarations leaves out the bodies of functions, which take most of the time of a check.
func declarations(f *ast.File) *ast.File {
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			d.Body = nil
		}
	}
	return f
}
