package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// Declared returns the declarations, by name, of the Go files that a pattern names.
func Declared(t testing.TB, pattern string) map[string]any {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no files: %v", pattern, err)
	}
	all := make(map[string]any)
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, object := range file.Scope.Objects {
			all[name] = object.Decl
		}
	}
	return all
}

// Options returns the names of the exported functions of a package that return an Option, sorted.
func Options(t testing.TB, dir string) (names []string) {
	t.Helper()
	for name, declaration := range Declared(t, filepath.Join(dir, "*.go")) {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || !token.IsExported(name) || f.Type.Results == nil {
			continue
		}
		if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && result.Name == "Option" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
