package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// index lists what the files of the repository declare, in all its modules. Two packages of one name
// share an entry.
type index struct {
	packages map[string]*declared
	imports  map[string]string // import paths by the names that files use
	tests    map[string]bool   // tests, benchmarks and names of subtests
	// testFuncs are the tests and benchmarks.
	testFuncs []testFunc
	flags     map[string]bool // names that files define with package flag or pflag
	modules   map[string]bool // paths of the modules that this one needs
	words     map[string]bool // words of all files that are no pages
	// constants holds all string constants, one per line.
	constants string
}

type testFunc struct{ dir, name string } // dir is relative to the root

// declared is what a package declares.
type declared struct {
	names   map[string]bool            // at the top level
	members map[string]map[string]bool // fields and methods, by type
	embeds  map[string][]string        // names of embedded types, by type
	options []string                   // exported functions that return an Option
}

func newDeclared() *declared {
	return &declared{names: map[string]bool{}, members: map[string]map[string]bool{}, embeds: map[string][]string{}}
}

var word = regexp.MustCompile(`[\pL_][\pL\d_]*(?:[.-][\pL\d_]+)*`)

// readIndex reads all files once.
var readIndex = sync.OnceValues(func() (*index, error) {
	s := &index{packages: map[string]*declared{}, imports: map[string]string{},
		modules: map[string]bool{}, tests: map[string]bool{}, flags: map[string]bool{}, words: map[string]bool{}}
	var constants strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && (entry.Name() == ".git" || entry.Name() == "pictures" || entry.Name() == "charts") {
				return filepath.SkipDir
			}
			return err
		}
		switch filepath.Ext(path) {
		case ".sum":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				module, _, _ := strings.Cut(line, " ")
				s.modules[module] = true
			}
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			s.add(file, filepath.ToSlash(dir), strings.HasSuffix(path, "_test.go"), &constants)
		case ".lua", ".sql", ".yml", ".yaml", ".json", ".sh", "", ".mod", ".js", ".tmpl":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s.addWords(string(text))
		}
		return nil
	})
	s.constants = constants.String()
	return s, err
})

func indexOf(t testing.TB) *index {
	t.Helper()
	s, err := readIndex()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *index) addWords(text string) {
	for _, w := range word.FindAllString(text, -1) {
		s.words[w], s.words[strings.TrimSuffix(w, "_bucket")] = true, true
		for _, part := range strings.FieldsFunc(w, func(r rune) bool { return r == '.' || r == '-' }) {
			s.words[part] = true
		}
	}
}

// add adds a file of Go.
func (s *index) add(file *ast.File, dir string, test bool, constants *strings.Builder) {
	name := strings.TrimSuffix(file.Name.Name, "_test")
	s.words[name] = true
	p := s.packages[name]
	if p == nil {
		p = newDeclared()
		s.packages[name] = p
	}
	if !test {
		p.add(file)
	}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := importName(path)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if s.imports[name] == "" {
			s.imports[name] = path
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if test && n.Recv == nil {
				s.tests[n.Name.Name] = true
				s.testFuncs = append(s.testFuncs, testFunc{dir, n.Name.Name})
			}
		case *ast.CallExpr: // flag.Bool("chaos", …), flags.BoolVar(&chaos, "chaos", …)
			for _, arg := range n.Args[:min(3, len(n.Args))] {
				if text, ok := constant(arg); ok {
					if _, ok := n.Fun.(*ast.SelectorExpr); ok {
						s.flags[text] = true
					}
				}
			}
		case *ast.BasicLit:
			text, ok := constant(n)
			if (test || strings.HasSuffix(name, "test")) && name != "docs" { // the tests of docs name mistakes
				s.tests[text] = ok
			}
			if ok && !test {
				constants.WriteString(text + "\n")
				s.addWords(text)
			}
		case *ast.Ident:
			s.words[n.Name] = s.words[n.Name] || !test
		}
		return true
	})
}

func importName(path string) string {
	parts := strings.Split(path, "/")
	last := parts[len(parts)-1]
	if len(parts) > 1 && regexp.MustCompile(`^v\d+$`).MatchString(last) {
		last = parts[len(parts)-2]
	}
	return strings.TrimPrefix(last, "go-")
}

func constant(n ast.Node) (string, bool) {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

// add adds the declarations of a file.
func (p *declared) add(file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				p.member(typeName(d.Recv.List[0].Type), d.Name.Name)
				continue
			}
			p.names[d.Name.Name] = true
			if d.Type.Results != nil && d.Name.IsExported() && typeName(d.Type.Results.List[0].Type) == "Option" {
				p.options = append(p.options, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						p.names[name.Name] = true
					}
				case *ast.TypeSpec:
					p.names[spec.Name.Name] = true
					p.addType(spec)
				}
			}
		}
	}
}

// addType adds the fields of a struct, the methods of an interface, and the types that they embed.
func (p *declared) addType(spec *ast.TypeSpec) {
	var list *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		p.embeds[spec.Name.Name] = append(p.embeds[spec.Name.Name], typeName(t))
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			p.member(spec.Name.Name, name.Name)
		}
		if len(field.Names) == 0 {
			p.member(spec.Name.Name, typeName(field.Type))
			p.embeds[spec.Name.Name] = append(p.embeds[spec.Name.Name], typeName(field.Type))
		}
	}
}

func (p *declared) member(of, name string) {
	if p.members[of] == nil {
		p.members[of] = map[string]bool{}
	}
	p.members[of][name] = true
}

// typeName returns the name of a type without its package, pointer and parameters.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	}
	return ""
}

// Options returns the names of the exported functions of a package that return an Option, sorted.
func Options(t testing.TB, name string) []string {
	t.Helper()
	p, found := indexOf(t).packages[name]
	if !found {
		t.Fatalf("there is no package %s", name)
	}
	return slices.Sorted(slices.Values(p.options))
}
