package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Code is what the blocks of a page are compiled with.
type Code struct {
	Given      map[string]string // what a block may expect to exist: names and their types
	Importable map[string]string // what a block that is not a whole file may use: names and import paths
	// Beluga is for a module that imports it: the blocks that do so are compiled, and no others.
	Beluga bool
}

// Compiles compiles the blocks of Go in the pages. It leaves out parts of programs, and the programs
// that another test runs.
func (c Code) Compiles(t testing.TB, pages ...Page) {
	t.Helper()
	build(t, c.sources(t, pages))
}

// sources makes a file of its own from each block, by the name of a package.
func (c Code) sources(t testing.TB, pages []Page) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, b := range blocks(pages, "go") {
		_, beluga := b.comments["beluga"]
		beluga = beluga || path.Base(b.page) == "beluga.md"
		if beluga != c.Beluga || b.comments["from"]+b.comments["run by"] != "" {
			continue
		}
		source, err := c.source(b)
		if err != nil {
			t.Errorf("%s: %v", b, err)
		}
		all[b.packageName()] = source
	}
	return all
}

func (b block) packageName() string {
	return strings.NewReplacer("/", "_", ".", "_", ":", "_").Replace(b.String())
}

// source makes a file from a block: a whole file, declarations, or statements.
func (c Code) source(b block) (string, error) {
	line := "//line " + b.String() + "\n"
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
	for _, name := range strings.FieldsFunc(b.comments["given"]+b.comments["beluga"], func(r rune) bool { return r == ',' || r == ' ' }) {
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

// build compiles files at once, each as a package of the tested module. It returns the folder with the
// binaries of those that are programs, under the names of their packages.
func build(t testing.TB, sources map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json")}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// An overlay puts the packages into the module without writing into its tree.
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, source := range sources {
		file := filepath.Join(dir, name+".go")
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(here, "blocks", name, name+".go")] = file
		if strings.HasPrefix(source, "package main\n") && len(args) == 4 {
			args = append(args, "-o", dir+"/") // go build refuses this without a program
		}
	}
	list, _ := json.Marshal(overlay)
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", append(args, "./blocks/...")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// Build builds a program, and returns the path of the binary.
func Build(t testing.TB, source string) string {
	t.Helper()
	return filepath.Join(build(t, map[string]string{"program": source}), "program")
}

// Run runs a program that [Build] has built, and returns its standard output. The program has to succeed,
// and to write nothing else.
func Run(t testing.TB, binary string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return stdout.String()
}

// RunsTwiceAtOnce builds the program of the place with its commands, in a folder beside a link to this clone.
// more are commands before the build. It runs two processes at once, on the Redis at addr: each answer of the
// author has seen the history before it, and the longer output begins with the shorter output.
func (p Place) RunsTwiceAtOnce(t testing.TB, addr, author, more string) {
	t.Helper()
	clone, err := filepath.Abs(root)
	dir := t.TempDir()
	source := strings.Replace(p.Blocks(t, "go")[0], "localhost:6379", addr, 1)
	err = errors.Join(err, os.Symlink(clone, filepath.Join(dir, "belugalock")), os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	commands := p.Blocks(t, "bash")
	build, _, _ := strings.Cut(commands[1], "\n")
	shell := exec.Command("sh", "-e", "-c", commands[0]+"mv ../main.go .\n"+more+"\n"+build)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=-trimpath") // the build is cached
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var outputs [2]string
	var both sync.WaitGroup
	for i := range outputs {
		both.Go(func() { outputs[i] = Run(t, filepath.Join(dir, "chat", "chat")) })
	}
	both.Wait()
	short, long := outputs[0], outputs[1]
	if len(short) > len(long) {
		short, long = long, short
	}
	lines := strings.Split(strings.TrimSuffix(long, "\n"), "\n")
	if len(lines) != 12 || !strings.HasPrefix(long, short) {
		t.Fatalf("they printed\n%s\n\nand\n%s", long, short)
	}
	asked := map[string]int{}
	for i := 0; i < len(lines); i += 2 {
		if want := fmt.Sprintf("%s %d messages.", author, i); lines[i+1] != want {
			t.Errorf("line %d is %q, want %q", i+2, lines[i+1], want)
		}
		asked[lines[i]]++
	}
	if len(asked) != 2 {
		t.Errorf("who asked: %v", asked)
	}
}
