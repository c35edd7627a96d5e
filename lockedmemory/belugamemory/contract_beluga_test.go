//go:build beluga

package belugamemory_test

import (
	"go/ast"
	"go/parser"
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
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		normalize(file)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				addFunc(found, decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						addType(found, spec)
					case *ast.ValueSpec:
						addValues(found, decl.Tok, spec)
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

func addFunc(found map[string]string, decl *ast.FuncDecl) {
	if !decl.Name.IsExported() {
		return
	}
	signature := typeParams(decl.Type.TypeParams) + types.ExprString(decl.Type)
	if decl.Recv == nil {
		found["func "+decl.Name.Name] = signature
		return
	}
	receiver := types.ExprString(decl.Recv.List[0].Type)
	if ast.IsExported(strings.TrimPrefix(receiver, "*")) {
		found["method ("+receiver+") "+decl.Name.Name] = signature
	}
}

func addType(found map[string]string, spec *ast.TypeSpec) {
	if !spec.Name.IsExported() {
		return
	}
	text := typeParams(spec.TypeParams)
	if spec.Assign.IsValid() {
		text += "= "
	}
	switch underlying := spec.Type.(type) {
	case *ast.StructType:
		text += "struct: " + strings.Join(fields(underlying), "; ")
	case *ast.InterfaceType:
		text += "interface: " + strings.Join(methods(underlying), "; ")
	default:
		text += types.ExprString(underlying)
	}
	found["type "+spec.Name.Name] = text
}

// addValues adds the values as in the source: the declarations of the contract do not use iota.
func addValues(found map[string]string, kind token.Token, spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if !name.IsExported() {
			continue
		}
		var text string
		if spec.Type != nil {
			text = types.ExprString(spec.Type)
		}
		if i < len(spec.Values) {
			text += " = " + types.ExprString(spec.Values[i])
		}
		found[kind.String()+" "+name.Name] = text
	}
}

// fields keeps the order, which matters for struct literals without field names.
func fields(s *ast.StructType) []string {
	var list []string
	for _, field := range s.Fields.List {
		text := types.ExprString(field.Type)
		if field.Tag != nil {
			text += " " + field.Tag.Value
		}
		if len(field.Names) == 0 {
			list = append(list, "embedded "+text)
		}
		for _, name := range field.Names {
			if name.IsExported() {
				list = append(list, name.Name+" "+text)
			}
		}
	}
	return list
}

func methods(i *ast.InterfaceType) []string {
	var list []string
	for _, method := range i.Methods.List {
		text := types.ExprString(method.Type)
		for _, name := range method.Names {
			text = name.Name + " " + text
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

func typeParams(params *ast.FieldList) string {
	if params == nil {
		return ""
	}
	var list []string
	for _, field := range params.List {
		for _, name := range field.Names {
			list = append(list, name.Name+" "+types.ExprString(field.Type))
		}
	}
	return "[" + strings.Join(list, ", ") + "] "
}
