//go:build beluga

package belugamemory_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// deviates lists the declarations of the contract that differ on purpose: this package only passes
// them on.
var deviates = []string{"llm: type GenerateOptions", "runtime: type SessionOption"}

// TestContract_declaresWhatBelugaDeclares compares the contract with the real Beluga. Beluga may
// declare more, except fields of structs, which the codec has to keep, and methods of interfaces,
// which other packages implement.
func TestContract_declaresWhatBelugaDeclares(t *testing.T) {
	const contract = "testdata/contract"
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/lookatitude/beluga-ai/v2")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	beluga := strings.TrimSpace(string(out))
	compared := 0
	err = filepath.WalkDir(contract, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(contract, dir)
		if err != nil {
			return err
		}
		got, want := declarations(t, dir), declarations(t, filepath.Join(beluga, name))
		for _, key := range slices.Sorted(maps.Keys(got)) {
			compared++
			theirs, ok := want[key]
			full := filepath.ToSlash(name) + ": " + key
			if !ok {
				t.Errorf("%s: Beluga does not declare it", full)
			} else if theirs != got[key] && !slices.Contains(deviates, full) {
				t.Errorf("%s:\ncontract %s\nBeluga   %s", full, got[key], theirs)
			}
		}
		return nil
	})
	must(t, err)
	if compared < 100 {
		t.Errorf("%d declarations were compared", compared)
	}
}

// declarations returns the exported declarations of the package in dir, by name. Names of
// parameters and imports do not count.
func declarations(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(t, err)
	found := map[string]string{}
	add := func(key string, node any) {
		var text strings.Builder
		must(t, printer.Fprint(&text, token.NewFileSet(), node)) // which knows no positions
		found[key] = strings.Join(strings.Fields(text.String()), " ")
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.FileExports(file)
		normalize(file)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				key := "func " + decl.Name.Name
				if decl.Recv != nil {
					receiver := types.ExprString(decl.Recv.List[0].Type)
					if !ast.IsExported(strings.TrimPrefix(receiver, "*")) {
						continue
					}
					key = "method (" + receiver + ") " + decl.Name.Name
				}
				decl.Recv, decl.Body = nil, nil
				add(key, decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add("type "+spec.Name.Name, spec)
					case *ast.ValueSpec: // no declaration of the contract uses iota
						for _, name := range spec.Names {
							add(decl.Tok.String()+" "+name.Name, spec)
						}
					}
				}
			}
		}
	}
	return found
}

// normalize replaces the names of packages by their paths. Each parameter and result becomes a
// separate field without a name.
func normalize(file *ast.File) {
	paths := map[string]string{}
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		paths[name] = imported
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BlockStmt:
			return false
		case *ast.SelectorExpr:
			if pkg, ok := node.X.(*ast.Ident); ok && paths[pkg.Name] != "" {
				node.X = ast.NewIdent(paths[pkg.Name])
			}
		case *ast.FuncType:
			node.Params, node.Results = unnamed(node.Params), unnamed(node.Results)
		case *ast.StructType:
			node.Incomplete = false // or the text would say so
		case *ast.InterfaceType:
			node.Incomplete = false
		}
		return true
	})
}

func unnamed(fields *ast.FieldList) *ast.FieldList {
	if fields == nil {
		return nil
	}
	flat := &ast.FieldList{}
	for _, field := range fields.List {
		for range max(1, len(field.Names)) {
			flat.List = append(flat.List, &ast.Field{Type: field.Type})
		}
	}
	return flat
}
