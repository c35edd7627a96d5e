package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withoutExample are patterns of exported functions and methods without an Example, and the reason.
var withoutExample = map[string]string{
	"*.Error":   "the standard library calls it",
	"*.Unwrap":  "the standard library calls it",
	"*.String":  "the standard library calls it",
	"*.Compare": "slices.SortFunc calls it",

	"distlock/driver.*":                         "for authors of backends: docs/howto/new-backend.md and memlock show the package",
	"lockedmemory/sessionstore/driver.*":        "for authors of stores: memstore shows the package",
	"distlock/fencing.*":                        "for authors of stores and wrappers: sessionstore shows the rest of the package",
	"distlock/drivertest.Faults.*":              "a Locker calls the methods of a driver",
	"distlock/*.ColocatedOf":                    "for stores beside the lock: redisstore and pgstore call it",
	"distlock/redislock.TransportOf":            "for stores beside the lock: redisstore calls it",
	"distlock/redislock.HashTag":                "for stores beside the lock: redisstore calls it",
	"distlock/redislock.KeyOf":                  "for stores beside the lock: redisstore calls it",
	"distlock/pglock.Companion":                 "for stores beside the lock: pgstore calls it",
	"distlock/pglock.MigrateParts":              "for stores beside the lock: pgstore calls it",
	"distlock/pglock.Handoff.Columns":           "for stores beside the lock: pgstore calls it",
	"distlock/pglock.MigrateFence":              "as Migrate",
	"distlock/pglock.FenceSQL":                  "as Fence, with database/sql",
	"distlock/pglock.TxLockSQL":                 "as TxLock, with database/sql",
	"distlock/*.NewDriver":                      "as New, for distlock.New with a wrapped driver",
	"distlock/*.OpenDriver":                     "as lockurl.Open, for distlock.New with a wrapped driver",
	"lockedmemory/sessionstore/*.NewDriver":     "as New, for sessionstore.New with a wrapped driver",
	"lockedmemory/sessionstore/*.NewColocated*": "as Open, for sessionstore.New with a wrapped driver",
	"lockedmemory.EndsLease":                    "for inner memories: sessionstore calls it",
	"lockedmemory.Lease":                        "for inner memories: sessionstore calls it",
	"lockedmemory.NamedTurn.*":                  "for inner memories: sessionstore calls it",
	"lockedmemory.LockedMemory.Search":          "as Load, with a query",
	"lockedmemory/sessionstore.Store.*":         "LockedMemory has the same methods, with Examples",
	"lockedmemory/sessionstore.JSON.*":          "the store calls the methods of a Codec",
	"lockedmemory/sessionstore.StaleError.*":    "errors.Is and Observers call it",
}

// The packages of the root module that users import. belugamemory has Examples of its own.
func TestExamples_everyEntryPointHasOne(t *testing.T) {
	used := map[string]bool{}
	shown := 0
	for dir, entries := range entryPoints(t) {
		for _, e := range entries {
			name := dir + "." + e.name
			if e.shown {
				shown++
				continue
			}
			excepted := false
			for pattern := range withoutExample {
				if excepts(t, pattern, name) {
					used[pattern], excepted = true, true
				}
			}
			if !excepted {
				t.Errorf("%s has no Example", name)
			}
		}
	}
	for pattern, reason := range withoutExample {
		if !used[pattern] {
			t.Errorf("no function needs the exception %s (%s)", pattern, reason)
		}
	}
	if shown < 60 {
		t.Errorf("%d entry points have an Example: are the packages found?", shown)
	}
}

// excepts compares a name with a pattern. A pattern without a package is about methods of all packages.
func excepts(t *testing.T, pattern, name string) bool {
	t.Helper()
	if strings.HasPrefix(pattern, "*") {
		return strings.HasSuffix(name, strings.TrimPrefix(pattern, "*"))
	}
	matched, err := path.Match(pattern, name)
	if err != nil {
		t.Fatal(err)
	}
	return matched
}

// One planted package shows each case: an Example by name, by a call, and none.
func TestExamples_plantedPackage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lock.go":      "package lock\n\ntype Lock struct{}\n\nfunc New() Lock { return Lock{} }\n\nfunc (Lock) Hold() {}\n\nfunc (Lock) Drop() {}\n",
		"lock_test.go": "package lock_test\n\nimport \"example.com/lock\"\n\nfunc ExampleLock_Hold() { lock.New().Hold() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]bool{}
	for _, e := range entriesOf(t, dir) {
		got[e.name] = e.shown
	}
	if want := map[string]bool{"New": true, "Lock.Hold": true, "Lock.Drop": false}; !maps.Equal(got, want) {
		t.Errorf("the entry points with an Example are %v, want %v", got, want)
	}
}

type entryPoint struct {
	name  string // as Locker.Do
	shown bool   // an Example has its name, or an Example of the package calls it
}

// entryPoints returns the exported functions and methods of each public package of the root module.
func entryPoints(t *testing.T) map[string][]entryPoint {
	t.Helper()
	all := map[string][]entryPoint{}
	for _, top := range []string{"distlock", "lockedmemory", "tracing"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if slices.Contains([]string{"internal", "testdata", "collectortest", "belugamemory"}, entry.Name()) {
				return filepath.SkipDir
			}
			dir, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			all[filepath.ToSlash(dir)] = entriesOf(t, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func entriesOf(t *testing.T, dir string) []entryPoint {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var entries []entryPoint
	calls := called(files)
	add := func(prefix string, funcs []*doc.Func) {
		for _, f := range funcs {
			entries = append(entries, entryPoint{prefix + f.Name, len(f.Examples) > 0 || calls[f.Name]})
		}
	}
	add("", pkg.Funcs)
	for _, typ := range pkg.Types {
		add("", typ.Funcs)
		add(typ.Name+".", typ.Methods)
	}
	return entries
}

// called returns the names that the Examples of a package call.
func called(files []*ast.File) map[string]bool {
	names := map[string]bool{}
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
				ast.Inspect(f, func(n ast.Node) bool {
					if selector, ok := n.(*ast.SelectorExpr); ok {
						names[selector.Sel.Name] = true
					}
					return true
				})
			}
		}
	}
	return names
}
