package distlock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Chance decides whether two timers that are due when they are set meet, so the code is read, too.
func TestTimers_durationIsConstantOrPositive(t *testing.T) {
	found := 0
	for _, dir := range []string{
		".", "internal/cleanup", "internal/queue", "internal/trust", "memlock", "drivertest",
		"../lockedmemory", "../tracing",
	} {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: no files: %v", dir, err)
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		constants := constantsOf(files)
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && setsTimer(call) {
					found++
					if !harmless(call.Args[0], constants) {
						t.Errorf("%s: the timer may be due when it is set", set.Position(call.Pos()))
					}
				}
				return true
			})
		}
	}
	if found == 0 {
		t.Error("no timer was found")
	}
}

// setsTimer reports whether call sets a timer, to fire after the first argument.
func setsTimer(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	if x, ok := f.X.(*ast.Ident); ok && x.Name == "time" {
		return slices.Contains([]string{"After", "AfterFunc", "NewTicker", "NewTimer", "Tick"}, f.Sel.Name)
	}
	return f.Sel.Name == "Reset"
}

// harmless reports whether d is a constant, or the result of atLeastOneTick or max.
func harmless(d ast.Expr, constants map[string]bool) bool {
	switch d := d.(type) {
	case *ast.Ident:
		return constants[d.Name]
	case *ast.SelectorExpr:
		x, ok := d.X.(*ast.Ident)
		return ok && (x.Name == "time" || x.Name == "cleanup")
	case *ast.CallExpr:
		f, ok := d.Fun.(*ast.Ident)
		return ok && (f.Name == "atLeastOneTick" || f.Name == "max")
	}
	return false
}

// constantsOf returns the names of the constants of a package, those within functions too.
func constantsOf(files []*ast.File) map[string]bool {
	names := make(map[string]bool)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if decl, ok := n.(*ast.GenDecl); ok && decl.Tok == token.CONST {
				for _, spec := range decl.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						names[name.Name] = true
					}
				}
			}
			return true
		})
	}
	return names
}
