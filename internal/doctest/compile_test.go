package doctest

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
	"strings"
	"testing"
)

// given is what the code of a page may expect to exist: names and their types.
var given = map[string]string{
	"answer":   "func(context.Context) error",
	"client":   "*redis.Client",
	"ctx":      "context.Context",
	"id":       "string",
	"lock":     "*distlock.Lock",
	"locker":   "*distlock.Locker",
	"mem":      "lockedmemory.Memory[string, string]",
	"memory":   "*lockedmemory.LockedMemory[string, string]",
	"model":    "func(ctx context.Context, history []string, question string) (string, error)",
	"question": "string",
	"session":  "lockedmemory.KeyFunc",
	"store":    "*sessionstore.Store[string, string]",
	"tenant":   "string",
}

// importable is what code that is not a whole file may use.
var importable = map[string]string{
	"context":       "context",
	"errors":        "errors",
	"fmt":           "fmt",
	"log":           "log",
	"sql":           "database/sql",
	"time":          "time",
	"redis":         "github.com/redis/go-redis/v9",
	"sdktrace":      "go.opentelemetry.io/otel/sdk/trace",
	"otlptracehttp": "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp",
	"distlock":      "github.com/belugalock/belugalock/distlock",
	"lockurl":       "github.com/belugalock/belugalock/distlock/lockurl",
	"redislock":     "github.com/belugalock/belugalock/distlock/redislock",
	"lockedmemory":  "github.com/belugalock/belugalock/lockedmemory",
	"sessionstore":  "github.com/belugalock/belugalock/lockedmemory/sessionstore",
	"redisstore":    "github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore",
	"tracing":       "github.com/belugalock/belugalock/tracing",
}

func TestDocs_codeCompiles(t *testing.T) {
	// An overlay puts one package per block into the module without writing into its tree.
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" {
				continue
			}
			source, err := b.source()
			if err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
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
	t.Logf("%d blocks", len(overlay.Replace))
}

// source makes a file of its own from a block: a whole file, declarations, or statements.
func (b block) source() (string, error) {
	line := fmt.Sprintf("//line %s:%d\n", b.page, b.line)
	if strings.HasPrefix(b.text, "package ") {
		return line + strings.Replace(b.text, "package main", "package block", 1), nil // no linking
	}
	body := line + b.text
	if _, err := parse(body); err != nil {
		if body, err = b.function(line); err != nil {
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
			if name, ok := selector.X.(*ast.Ident); ok && importable[name.Name] != "" {
				imports[name.Name] = true
			}
		}
		return true
	})
	head := "package block\n"
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		head += fmt.Sprintf("import %s %q\n", name, importable[name])
	}
	return head + body, nil
}

// function wraps statements.
func (b block) function(line string) (string, error) {
	var parameters []string
	for _, name := range b.given {
		if given[name] == "" {
			return "", fmt.Errorf("%q is not known: it can be one of %q", name, slices.Sorted(maps.Keys(given)))
		}
		parameters = append(parameters, name+" "+given[name])
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
