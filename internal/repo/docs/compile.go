package docs

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Code is what the blocks of a page are compiled with.
type Code struct {
	Given      map[string]string // what a block may expect to exist: names and their types
	Importable map[string]string // what a block that is not a whole file may use: names and import paths
	// Beluga is for a module that imports it: the blocks that do so are compiled, and no others.
	Beluga bool
	// Without leaves out blocks that need one of these import paths: those that cannot be had.
	Without []string
}

// Compiles compiles every block of Go in the pages, as packages of the tested module. It leaves out
// the blocks that are parts of programs.
func (c Code) Compiles(t testing.TB, pages ...Page) {
	t.Helper()
	// An overlay puts one package per block into the module without writing into its tree.
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	without := 0
	for _, p := range pages {
		for _, b := range p.blocks {
			if b.lang != "go" || b.beluga != c.Beluga || b.from != "" {
				continue
			}
			source, err := c.source(b)
			if err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
				continue
			}
			if slices.ContainsFunc(c.Without, func(path string) bool { return strings.Contains(source, strconv.Quote(path)) }) {
				without++
				continue
			}
			name := fmt.Sprintf("block%d", len(overlay.Replace))
			file := filepath.Join(dir, name+".go")
			if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(here, "blocks", name, name+".go")] = file
		}
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "./blocks/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%d blocks, without %d that need what cannot be had here", len(overlay.Replace), without)
}

// source makes a file of its own from a block: a whole file, declarations, or statements.
func (c Code) source(b block) (string, error) {
	line := fmt.Sprintf("//line %s:%d\n", b.page, b.line)
	if strings.HasPrefix(b.text, "package ") {
		return line + strings.Replace(b.text, "package main", "package block", 1), nil // no linking
	}
	body := line + b.text
	if _, err := parse(body); err != nil {
		if body, err = c.function(b, line); err != nil {
			return "", err
		}
	}
	file, err := parse(body)
	if err != nil {
		return "", err
	}
	imports := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok && c.Importable[name.Name] != "" {
				imports[name.Name] = true
			}
		}
		return true
	})
	head := "package block\n"
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		head += fmt.Sprintf("import %s %q\n", name, c.Importable[name])
	}
	return head + body, nil
}

// function wraps statements.
func (c Code) function(b block, line string) (string, error) {
	var parameters []string
	for _, name := range b.given {
		if c.Given[name] == "" {
			return "", fmt.Errorf("%q is not known: it can be one of %q", name, slices.Sorted(maps.Keys(c.Given)))
		}
		parameters = append(parameters, name+" "+c.Given[name])
	}
	head := "func _(" + strings.Join(parameters, ", ") + ") error {\n" + line + b.text
	file, err := parse(head + "}\n")
	if err != nil {
		return "", err
	}
	// What a fragment makes for the reader to use is used.
	for _, statement := range file.Decls[0].(*ast.FuncDecl).Body.List {
		assignment, ok := statement.(*ast.AssignStmt)
		if !ok || assignment.Tok != token.DEFINE {
			continue
		}
		for _, left := range assignment.Lhs {
			if name := left.(*ast.Ident).Name; name != "_" {
				head += "_ = " + name + "\n"
			}
		}
	}
	return head + "return nil\n}\n", nil
}

func parse(body string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", "package block\n"+body, parser.SkipObjectResolution)
}
