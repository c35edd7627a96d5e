package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Names in backquotes exist: the files of the repository have every word, a package or type has every
// member that stands behind a point, and every path leads to a file.
func TestDocs_namesExist(t *testing.T) {
	t.Parallel()
	n := namesOf(t)
	for _, p := range allPages(t) {
		inBlock := func(text string) bool {
			return slices.ContainsFunc(p.blocks, func(b block) bool { return strings.Contains(b.text, text) })
		}
		for line, text := range p.inlineCode {
			if command.MatchString(text) || strings.HasPrefix(p.name, "docs/reports/") {
				continue // see TestCommands_exist; reports are of their days
			}
			if err := n.check(path.Dir(p.name), text); err != nil && !inBlock(text) {
				t.Errorf("%s:%d: `%s`: %v", p.name, line, text, err)
			}
		}
	}
}

// known are names of other programs and modules that no file here has, and placeholders.
var known = strings.Fields(`
	REV OWNER host1 host2 host3 dirlock WithTranslationStrategy translation_strategy ratelimit
	AcquireTraced NewLockedMemory runtime.Goexit iter.Pull defer agent.WithMemory core.App dragonfly mongodb sqlite archival neo4j memgraph
	main.go runner.New RunLive agentengine SERIALIZABLE WAIT SAVE BGSAVE NOMASTERLINK SETNX setinfo`)

// names are what the files of the repository have, in all its modules. Packages of one name share an entry,
// and so do types.
type names struct {
	words   map[string]bool            // of everything that is no page and no comment of Go
	members map[string]map[string]bool // of a package: its declarations; of a type: its fields and methods
	embeds  map[string][]string        // types that a type embeds
	texts   strings.Builder            // the string constants of code that is no test
}

var readNames = sync.OnceValues(func() (*names, error) {
	n := &names{words: map[string]bool{}, members: map[string]map[string]bool{}, embeds: map[string][]string{}}
	for _, name := range known {
		n.words[name] = true
	}
	return n, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		switch filepath.Ext(path) {
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			n.add(file, strings.HasSuffix(path, "_test.go"))
		case ".lua", ".sql", ".yml", ".yaml", ".json", ".sh", ".mod", ".sum", ".js", ".tmpl", "":
			text, err := os.ReadFile(path)
			n.addWords(string(text))
			return err
		}
		return nil
	})
})

func namesOf(t testing.TB) *names {
	t.Helper()
	n, err := readNames()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var word = regexp.MustCompile(`[\pL_][\pL\d_]*`)

func (n *names) addWords(text string) {
	for _, w := range word.FindAllString(text, -1) {
		n.words[w] = true
	}
}

func (n *names) add(file *ast.File, test bool) {
	pkg := strings.TrimSuffix(file.Name.Name, "_test")
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			n.words[node.Name] = true
		case *ast.BasicLit, *ast.BinaryExpr:
			text := constant(node)
			n.addWords(text)
			if !test {
				n.texts.WriteString(text + "\n")
			}
		case *ast.FuncDecl:
			of := pkg
			if node.Recv != nil {
				of = typeName(node.Recv.List[0].Type)
			}
			n.member(of, node.Name.Name)
		case *ast.ValueSpec:
			for _, name := range node.Names {
				n.member(pkg, name.Name)
			}
		case *ast.TypeSpec:
			n.member(pkg, node.Name.Name)
			ast.Inspect(node.Type, func(part ast.Node) bool {
				field, ok := part.(*ast.Field)
				if ok && len(field.Names) == 0 {
					n.embeds[node.Name.Name] = append(n.embeds[node.Name.Name], typeName(field.Type))
				} else if ok {
					for _, name := range field.Names {
						n.member(node.Name.Name, name.Name)
					}
				}
				return !ok
			})
		}
		return true
	})
}

func (n *names) member(of, name string) {
	if n.members[of] == nil {
		n.members[of] = map[string]bool{}
	}
	n.members[of][name] = true
}

// typeName returns the name of a type without its package, pointer and parameters.
func typeName(t ast.Expr) string {
	name, _, _ := strings.Cut(types.ExprString(t), "[")
	return name[strings.LastIndexAny(name, "*.")+1:]
}

// has reports whether a package or type has a member, its own or of an embedded type. Those of other modules
// are believed to have every member.
func (n *names) has(of, name string, seen ...string) bool {
	return n.members[of] == nil || n.members[of][name] || slices.ContainsFunc(n.embeds[of], func(embedded string) bool {
		return !slices.Contains(append(seen, of), embedded) && n.has(embedded, name, append(seen, of)...)
	})
}

// constant joins the strings of an expression.
func constant(node ast.Node) string {
	switch node := node.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(node.Value)
		return text
	case *ast.BinaryExpr:
		return constant(node.X) + constant(node.Y)
	}
	return ""
}

var (
	dotted = regexp.MustCompile(`[\pL_][\pL\d_]*(\.[\pL_][\pL\d_]*)*`)
	file   = regexp.MustCompile(`^[\w./-]+\.(md|go|lua|sql|ya?ml|json|sh|svg)$`)
)

// check looks for the words and files of a text. dir is that of the page.
func (n *names) check(dir, text string) error {
	for _, from := range []string{"", dir} {
		if _, err := os.Stat(filepath.Join(root, from, strings.TrimSuffix(text, "..."))); err == nil || n.words[text] {
			return nil
		}
	}
	if file.MatchString(text) {
		return errors.New("there is no such file")
	}
	for _, name := range dotted.FindAllString(text, -1) {
		parts := strings.Split(name, ".")
		for i, part := range parts {
			if !n.words[part] {
				return fmt.Errorf("no file has the word %s", part)
			}
			if i > 0 && token.IsExported(part) && !n.words[name] && !n.has(parts[i-1], part) {
				return fmt.Errorf("%s has no %s", parts[i-1], part)
			}
		}
	}
	return nil
}
