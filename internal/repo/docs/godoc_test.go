package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutExample are patterns of exported functions and methods without an Example.
var withoutExample = []string{
	"driver.*",                  // for authors of backends: memlock shows the package
	"storedriver.*",             // for authors of stores: memstore shows the package
	"fencing.*",                 // for authors of wrappers: sessionstore shows the rest
	"drivertest.Faults.*",       // a Locker calls the methods of a driver
	"pglock.MigrateFence",       // as Migrate
	"pglock.FenceSQL",           // as Fence, with database/sql
	"pglock.TxLockSQL",          // as TxLock, with database/sql
	"*.NewDriver",               // as New, for distlock.New or sessionstore.New with a wrapped driver
	"*.OpenDriver",              // as that of redislock, which has an Example
	"*.NewColocated*",           // as Open, for sessionstore.New with a wrapped driver
	"lockedmemory.Lease",        // for inner memories: sessionstore calls it
	"lockedmemory.*.Search",     // as Load, with a query
	"sessionstore.Store*.*",     // LockedMemory has the same methods, with Examples
	"sessionstore.JSON*.*",      // the store calls the methods of a Codec
	"sessionstore.StaleError.*", // errors.Is and Observers call it
}

// The standard library calls these methods.
var ofStandardLibrary = regexp.MustCompile(`^(Error|Unwrap|Is|String|Compare)$`)

// Every exported name has a comment. Every exported function and method has an Example, or the Examples of
// its package use the name.
func TestGodoc_commentsAndExamples(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"adksession", "distlock", "lockedmemory", "tracing"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || !entry.IsDir():
				return err
			case entry.Name() == "internal" || entry.Name() == "testdata" || entry.Name() == "belugamemory":
				return filepath.SkipDir
			}
			checkGodoc(t, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func checkGodoc(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		return
	}
	fset, examples := token.NewFileSet(), ""
	var files []*ast.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if files = append(files, file); strings.HasPrefix(filepath.Base(path), "example") {
			examples += string(text)
		}
	}
	pkg, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	funcs := pkg.Funcs
	for _, typ := range pkg.Types {
		if typ.Doc == "" {
			t.Errorf("%s.%s has no comment", pkg.Name, typ.Name)
		}
		funcs = slices.Concat(funcs, typ.Funcs, typ.Methods)
	}
	for _, f := range funcs {
		name := pkg.Name + "." + f.Name
		if of := strings.Trim(f.Recv, "*"); of != "" {
			name = pkg.Name + "." + of + "." + f.Name
		}
		if ofStandardLibrary.MatchString(f.Name) {
			continue
		}
		if f.Doc == "" {
			t.Errorf("%s has no comment", name)
		}
		excepted := slices.ContainsFunc(withoutExample, func(pattern string) bool {
			matched, err := path.Match(pattern, name)
			return matched || err != nil
		})
		if len(f.Examples) == 0 && !strings.Contains(examples, "."+f.Name) && !excepted {
			t.Errorf("%s has no Example", name)
		}
	}
}
