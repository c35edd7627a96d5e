package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// Parse reads the Go files that a pattern names.
func Parse(t testing.TB, pattern string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no files: %v", pattern, err)
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// Options returns the names of the exported functions of a package that return an Option, sorted.
func Options(t testing.TB, dir string) (names []string) {
	t.Helper()
	for _, file := range Parse(t, filepath.Join(dir, "*.go")) {
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil {
				continue
			}
			if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && result.Name == "Option" {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
