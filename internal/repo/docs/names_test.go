package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belugalock/belugalock/internal/testservers"
)

// Names in backquotes exist: identifiers of Go, files, flags, commands, settings, metrics, attributes.
func TestDocs_namesExist(t *testing.T) {
	t.Parallel()
	n := newNames(t)
	var checked, unknown, tests int
	for _, p := range AllPages(t) {
		for i, line := range p.lines {
			if p.inBlock(i + 1) {
				continue
			}
			for _, text := range inlineCode(line) {
				what, err := n.check(p.name, text)
				if err != nil && !slices.ContainsFunc(p.blocks, func(b block) bool { return strings.Contains(b.text, text) }) {
					t.Errorf("%s:%d: `%s`: %v", p.name, i+1, text, err)
				}
				if what == "a test" {
					tests++
				}
				if what == "" {
					unknown++
					t.Logf("%s:%d: not checked: `%s`", p.name, i+1, text)
				}
				checked++
			}
		}
	}
	t.Logf("%d names in backquotes, %d of them have no rule", checked, unknown)
	if tests == 0 {
		t.Error("no page names a test")
	}
}

// Each mistake is one of a kind that the test above has to find.
func TestDocs_wrongNamesAreFound(t *testing.T) {
	t.Parallel()
	n := newNames(t)
	for wrong, right := range map[string]string{
		"distlock.Option":                     "distlock.Options",
		"distlock.Options.Waits":              "distlock.Options.Wait",
		"Options.Waiting":                     "Options.Wait",
		"*distlock.BusyErr":                   "*distlock.BusyError",
		"BusyError.Waiter":                    "BusyError.Waiters",
		"Locker.Aquire":                       "Locker.Acquire",
		"locker.Aquire(ctx, key)":             "locker.Acquire(ctx, key)",
		"ErrLosst":                            "ErrLost",
		"redisstore.Opens":                    "redisstore.Open",
		"lockurls.Open":                       "lockurl.Open",
		"&distlock.Options{TTTL: d}":          "&distlock.Options{TTL: d}",
		"redis.NewClients(o)":                 "redis.NewClient(o)",
		"context.Cancelled":                   "context.Canceled",
		"distlock.acquire.durations":          "distlock.acquire.duration",
		"lock_keys":                           "lock_key",
		"docs/design/rediss.md":               "docs/design/redis.md",
		"examples/agents":                     "examples/agent",
		"-chaoss":                             "-chaos",
		"make test-al":                        "make test-all",
		"go run ./examples/agents":            "go run ./examples/agent",
		"go test -run TestNowhere ./distlock": "go test -run TestLease ./distlock",
		"XADDD":                               "XADD",
		"distlock:{K}:queuess":                "distlock:{K}:queue",
		"TestUnfenced":                        "TestUnfenced_existsLetsStaleWriteCommit",
		"OTEL_EXPORTER_OTLP_ENDPOIN":          "OTEL_EXPORTER_OTLP_ENDPOINT",
	} {
		if _, err := n.check("README.md", wrong); err == nil {
			t.Errorf("`%s` is found to be right", wrong)
		}
		if what, err := n.check("README.md", right); err != nil || what == "" {
			t.Errorf("`%s` is found to be wrong: %v", right, err)
		}
	}
}

// names knows which names exist.
type names struct {
	*index
	mu       sync.Mutex           // guards foreign
	foreign  map[string]*declared // packages of other modules and of the standard library
	settings map[string]bool      // commands and settings of Redis, keywords, settings and functions of PostgreSQL
}

// known are names of other programs and modules that no file here has.
var known = strings.Fields(`
	ratelimit prefer NOMASTERLINK
	-race SSL_CERT_FILE target_session_attrs=read-write i/o OTEL_RESOURCE_ATTRIBUTES EOF psql redis-cli --enable-feature=exemplar-storage translation_strategy
	runtime.Goexit auto_explain exceeded MiB The executing subcommand
	core.App agent.WithMemory Runner Team Contract() archival archival-1 archival-2 NewArchival SetPersona SetHuman
	stores/redis stores/dragonfly stores/mongodb stores/postgres stores/sqlite stores/neo4j stores/memgraph`)

var shared struct {
	once sync.Once
	*names
}

// newNames returns the names that exist. All tests share them.
func newNames(t *testing.T) *names {
	t.Helper()
	shared.once.Do(func() { shared.names = readNames(t) })
	if shared.names == nil {
		t.Fatal("the names could not be read")
	}
	return shared.names
}

func readNames(t *testing.T) *names {
	n := &names{index: indexOf(t), foreign: map[string]*declared{}, settings: map[string]bool{}}
	redis := testservers.SharedServer()
	commands, err := redis.Do("COMMAND", "LIST")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := redis.Do("CONFIG", "GET", "*")
	if err != nil {
		t.Fatal(err)
	}
	postgres, err := testservers.SharedPostgres(t).NewDatabase(t).Do(`
		SELECT word FROM pg_get_keywords() UNION SELECT name FROM pg_settings
		UNION SELECT proname FROM pg_proc UNION SELECT relname FROM pg_class`)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(commands + "\n" + settings + "\n" + postgres) {
		n.settings[strings.ToLower(name)] = true
	}
	list, err := exec.Command("go", append([]string{"list", "-e", "-find", "-f", "{{.ImportPath}} {{.Dir}}"},
		slices.Collect(maps.Values(code.Importable))...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range code.Importable {
		for line := range strings.Lines(string(list)) {
			if dir, ok := strings.CutPrefix(line, path+" "); ok && n.packages[name] == nil {
				if n.foreign[name], err = declarations(strings.TrimSpace(dir)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return n
}

// check says what a name is; an empty string stands for a text without a rule.
func (n *names) check(page, text string) (what string, err error) {
	if slices.Contains(known, text) {
		return "a name of another program", nil
	}
	if programs.MatchString(text) {
		for _, words := range simpleCommands(text) {
			if err := n.command(words); err != nil {
				return "a command", err
			}
		}
		return "a command", nil
	}
	for _, rule := range rules {
		if rule.of.MatchString(text) {
			return rule.what, rule.check(n, page, text)
		}
	}
	if expr, err := parser.ParseExpr(text); err == nil {
		return "Go", n.expression(expr)
	}
	if strings.Contains(n.constants, text) {
		return "a text", nil
	}
	if own, _, _ := strings.Cut(text, ": "); own != text && !token.IsExported(own) && n.packages[own] != nil {
		return "a text", fmt.Errorf("no string constant has the text")
	}
	return "words", n.eachWord(text)
}

// eachWord is for patterns of keys, statements and quoted messages.
func (n *names) eachWord(text string) error {
	for _, w := range word.FindAllString(placeholder.ReplaceAllString(text, " "), -1) {
		if _, err := n.check("", w); err != nil {
			return err
		}
	}
	return nil
}

var placeholder = regexp.MustCompile(`<[^<>]*>|\{[^{}]*\}`)

// The first rule that fits decides. Expressions of Go come after the rules.
var rules = []struct {
	what  string
	of    *regexp.Regexp
	check func(n *names, page, text string) error
}{
	{"a URL", regexp.MustCompile(`^[a-z+]+://`), accept},
	{"a right of Redis", regexp.MustCompile(`^[+~&@%][^ ]+$`), accept}, // see TestRights_asInThePackages
	{"a number", regexp.MustCompile(`^:?\d[\w.:]*$`), accept},
	{"a test", regexp.MustCompile(`^(Test[A-Z]|Benchmark|[A-Z]\d?_)\w+(/\w+)*$`), (*names).test},
	{"a file", regexp.MustCompile(`^(\.\.?/)*[a-z.][\w.-]*/[\w./-]*$|^[\w-]+\.(md|go|lua|sql|ya?ml|json|sh|svg)$`), (*names).file},
	{"a flag", regexp.MustCompile(`^--?[a-z][\w-]*([ =].*)?$`), (*names).flag},
	{"a field", regexp.MustCompile(`^[A-Za-z_]+: [^ ]+$`), (*names).first},
	{"a parameter", regexp.MustCompile(`^[A-Za-z_]+=[^ ]*$`), (*names).first},
	{"an upper-case word", regexp.MustCompile(`^[A-Z][A-Z0-9_]+( [^ ].*)?$`), (*names).first},
	{"a word", regexp.MustCompile(`^[a-z][a-z0-9]*([._-][a-z0-9]+)*$`), (*names).first},
}

func accept(*names, string, string) error { return nil }

func (n *names) test(_, text string) error {
	for name := range strings.SplitSeq(text, "/") {
		if !n.tests[name] {
			return fmt.Errorf("there is no test %s", name)
		}
	}
	return nil
}

// file is for the names of files, of packages to import, and of subtests.
func (n *names) file(page, text string) error {
	for _, dir := range []string{"", path.Dir(page)} {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir), filepath.FromSlash(strings.TrimSuffix(text, "/...")))); err == nil {
			return nil
		}
	}
	if first, _, _ := strings.Cut(text, "/"); n.words[text] || n.tests[first] {
		return nil
	}
	for module := text; module != "."; module = path.Dir(module) {
		if n.modules[module] {
			return nil
		}
	}
	return fmt.Errorf("there is no such file")
}

func (n *names) flag(_, text string) error {
	name := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '=' })[0]
	if n.flags[strings.TrimLeft(name, "-")] {
		return nil
	}
	return fmt.Errorf("no program has the flag")
}

// first is for words of all kinds: metrics, attributes, parameters, settings, commands, variables.
func (n *names) first(_, text string) error {
	name := text
	if end := strings.IndexAny(text, ": ="); end > 0 {
		name = text[:end]
	}
	if n.words[name] || token.IsKeyword(name) || n.tests[name] || n.settings[strings.ToLower(name)] || n.declares(name) {
		return nil
	}
	return fmt.Errorf("no file and no server knows %s", name)
}

// expression checks the identifiers of an expression.
func (n *names) expression(expr ast.Expr) (err error) {
	fail := func(format string, args ...any) bool {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
		return false
	}
	ast.Inspect(expr, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			names, ok := selectors(node)
			if !ok {
				if !n.hasMember(node.Sel.Name) {
					return fail("nothing has %s", node.Sel.Name)
				}
				return true
			}
			if failure := n.qualified(names); failure != nil {
				return fail("%w", failure)
			}
			return false
		case *ast.Ident:
			exists := n.declares(node.Name) || !node.IsExported() && (n.words[node.Name] || n.tests[node.Name])
			if len(node.Name) > 1 && !exists {
				return fail("%s is not declared", node.Name)
			}
		}
		return true
	})
	return err
}

// selectors returns the identifiers of a.b.c.
func selectors(expr ast.Expr) ([]string, bool) {
	switch expr := expr.(type) {
	case *ast.Ident:
		return []string{expr.Name}, true
	case *ast.SelectorExpr:
		names, ok := selectors(expr.X)
		return append(names, expr.Sel.Name), ok
	}
	return nil, false
}

// qualified checks pkg.Name, pkg.Type.Member, Type.Member and variable.Member.
func (n *names) qualified(names []string) error {
	if p, err := n.packageOf(names[0]); err != nil {
		return err
	} else if p != nil && token.IsExported(names[1]) {
		if !p.names[names[1]] {
			return fmt.Errorf("package %s has no %s", names[0], names[1])
		}
		names = names[1:]
	} else if !token.IsExported(names[0]) && !n.words[names[0]] {
		return fmt.Errorf("there is no package or variable %s", names[0])
	}
	for i, name := range names[1:] {
		if of := names[i]; token.IsExported(of) && n.isType(of) {
			if !n.memberOf(of, name, nil) {
				return fmt.Errorf("%s has no %s", of, name)
			}
		} else if !n.hasMember(name) {
			return fmt.Errorf("nothing has a member %s", name)
		}
	}
	if token.IsExported(names[0]) && !n.declares(names[0]) {
		return fmt.Errorf("%s is not declared", names[0])
	}
	return nil
}

// packageOf finds a package by its name: of the repository, or one that a file imports.
func (n *names) packageOf(name string) (*declared, error) {
	if p := n.packages[name]; p != nil {
		return p, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.foreign[name]; ok {
		return p, nil
	}
	imported := cmp.Or(n.imports[name], code.Importable[name])
	if imported == "" {
		return nil, nil
	}
	dir, err := exec.Command("go", "list", "-e", "-find", "-f", "{{.Dir}}", imported).Output()
	if err != nil {
		return nil, err
	}
	n.foreign[name], err = declarations(strings.TrimSpace(string(dir)))
	return n.foreign[name], err
}

func declarations(dir string) (*declared, error) {
	if dir == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	p := newDeclared()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.add(file)
	}
	return p, nil
}

func (n *names) all(yield func(*declared) bool) {
	n.mu.Lock()
	foreign := maps.Clone(n.foreign)
	n.mu.Unlock()
	for _, packages := range []map[string]*declared{n.packages, foreign} {
		for _, p := range packages {
			if p != nil && !yield(p) {
				return
			}
		}
	}
}

func (n *names) isType(name string) bool {
	for p := range n.all {
		if p.members[name] != nil || p.embeds[name] != nil {
			return true
		}
	}
	return false
}

// memberOf reports whether a type of this name, or a type that is embedded there, has the member.
func (n *names) memberOf(of, name string, seen []string) bool {
	if slices.Contains(seen, of) {
		return false
	}
	for p := range n.all {
		if p.members[of][name] {
			return true
		}
		for _, embedded := range p.embeds[of] {
			if n.memberOf(embedded, name, append(seen, of)) {
				return true
			}
		}
	}
	return false
}

func (n *names) hasMember(name string) bool {
	for p := range n.all {
		for _, members := range p.members {
			if members[name] {
				return true
			}
		}
	}
	return false
}

// declares reports whether a package declares the name, or a type has this member.
func (n *names) declares(name string) bool {
	for p := range n.all {
		if p.names[name] {
			return true
		}
	}
	return n.hasMember(name)
}
