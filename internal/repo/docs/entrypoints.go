package docs

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/doc"
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
)

const modulePath = "github.com/belugalock/belugalock/"

// EntryPoint is an exported function or method of a package that users import.
type EntryPoint struct {
	Name  string // as distlock.Locker.Do: the directory of the package, the type and the function
	Shown bool   // an Example of the package has its name, or uses exactly this function
}

// EntryPoints returns the entry points of the packages that match the patterns of go list.
func EntryPoints(t testing.TB, patterns ...string) (all []EntryPoint) {
	t.Helper()
	type listed struct {
		ImportPath, Dir, Export, ForTest   string
		GoFiles, TestGoFiles, XTestGoFiles []string
		DepOnly                            bool
	}
	fields := "-json=ImportPath,Dir,Export,ForTest,GoFiles,TestGoFiles,XTestGoFiles,DepOnly"
	out, err := exec.CommandContext(t.Context(), "go",
		append([]string{"list", "-export", "-deps", "-test", fields}, patterns...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		internal := slices.Contains(strings.Split(p.ImportPath, "/"), "internal")
		if !p.DepOnly && !internal && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			packages = append(packages, p)
		}
	}
	for _, p := range packages {
		s := &examples{fset: token.NewFileSet(), used: map[string]bool{}}
		s.imports = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
		own := s.check(t, p.ImportPath, p.Dir, slices.Concat(p.GoFiles, p.TestGoFiles))
		outside := s.check(t, p.ImportPath+"_test", p.Dir, p.XTestGoFiles)
		all = append(all, s.entryPoints(t, p.ImportPath, slices.Concat(own, outside))...)
	}
	return all
}

// examples are the files of one package and of its tests.
type examples struct {
	fset    *token.FileSet
	imports types.Importer
	used    map[string]bool // names of the functions that Examples use
}

// check adds the functions that the Examples of some files use. The tests may use names that export_test.go
// adds. No Example is about those, so errors do not matter.
func (s *examples) check(t testing.TB, path, dir string, names []string) (files []*ast.File) {
	t.Helper()
	for _, name := range names {
		file, err := parser.ParseFile(s.fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: s.imports, Error: func(error) {}}
	_, _ = config.Check(path, s.fset, files, info)
	for _, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Example") || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if ident, ok := n.(*ast.Ident); ok {
					if used, ok := info.Uses[ident].(*types.Func); ok {
						s.used[qualified(used)] = true
					}
				}
				return true
			})
		}
	}
	return files
}

// qualified returns the name of a function or method, with its package and type.
func qualified(f *types.Func) string {
	if f.Pkg() == nil {
		return f.Name()
	}
	name := f.Name()
	if recv := f.Signature().Recv(); recv != nil {
		of := recv.Type()
		if pointer, ok := of.(*types.Pointer); ok {
			of = pointer.Elem()
		}
		if named, ok := of.(*types.Named); ok {
			name = named.Obj().Name() + "." + name
		}
	}
	return shortName(f.Pkg().Path(), name)
}

func shortName(path, name string) string { return strings.TrimPrefix(path, modulePath) + "." + name }

func (s *examples) entryPoints(t testing.TB, path string, files []*ast.File) (entries []EntryPoint) {
	t.Helper()
	pkg, err := doc.NewFromFiles(s.fset, files, path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	add := func(prefix string, funcs []*doc.Func) {
		for _, f := range funcs {
			name := shortName(path, prefix+f.Name)
			entries = append(entries, EntryPoint{name, len(f.Examples) > 0 || s.used[name]})
		}
	}
	add("", pkg.Funcs)
	for _, typ := range pkg.Types {
		add("", typ.Funcs)
		add(typ.Name+".", typ.Methods)
	}
	return entries
}
