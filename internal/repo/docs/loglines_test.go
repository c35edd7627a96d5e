package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The table has each log line of the library, and no other.
func TestLogLines_asInTheCode(t *testing.T) {
	var lines []string
	for _, dir := range []string{"distlock", "lockedmemory", "tracing"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
				lines = append(lines, linesOf(t, path)...)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := LogLines.Table(t)
	for _, line := range lines {
		if !slices.ContainsFunc(rows, func(row []string) bool { return strings.HasPrefix(line, row[0]) }) {
			t.Errorf("%s does not list %q", LogLines.Page, line)
		}
	}
	for _, row := range rows {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, row[0]) }) {
			t.Errorf("no package logs %q", row[0])
		}
	}
}

// linesOf returns the texts of a file that begin with the name of its package and are no errors, if the
// file uses a logger.
func linesOf(t *testing.T, path string) (lines []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	logs := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			logs = logs || n.Name == "Logger" || n.Name == "slog"
		case *ast.CallExpr:
			called, ok := n.Fun.(*ast.SelectorExpr)
			return !ok || called.Sel.Name != "New" && called.Sel.Name != "Errorf" // an error, with all below it
		case *ast.BasicLit:
			if text, ok := constant(n); ok && strings.HasPrefix(text, file.Name.Name+": ") {
				lines = append(lines, text)
			}
		}
		return true
	})
	if !logs {
		return nil
	}
	return lines
}
