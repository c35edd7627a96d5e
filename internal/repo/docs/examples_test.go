package docs

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// withoutExample are patterns of exported functions and methods without an Example, and the reason.
var withoutExample = map[string]string{
	"*.Error":   "the standard library calls it",
	"*.Unwrap":  "the standard library calls it",
	"*.String":  "the standard library calls it",
	"*.Is":      "the standard library calls it",
	"*.Compare": "slices.SortFunc calls it",

	"distlock/driver.*":                         "for authors of backends: docs/howto/new-backend.md and memlock show the package",
	"lockedmemory/sessionstore/storedriver.*":   "for authors of stores: memstore shows the package",
	"distlock/fencing.*":                        "for authors of stores and wrappers: sessionstore shows the rest of the package",
	"distlock/drivertest.Faults.*":              "a Locker calls the methods of a driver",
	"tracing.Tracing.*":                         "a Locker calls the methods of an Observer",
	"distlock/pglock.MigrateFence":              "as Migrate",
	"distlock/pglock.FenceSQL":                  "as Fence, with database/sql",
	"distlock/pglock.TxLockSQL":                 "as TxLock, with database/sql",
	"distlock/redlock.NewDriver":                "as that of redislock, which has an Example",
	"distlock/redlock.OpenDriver":               "as that of redislock, which has an Example",
	"distlock/pglock.NewDriver":                 "as New, for distlock.New with a wrapped driver",
	"lockedmemory/sessionstore/*.NewDriver":     "as New, for sessionstore.New with a wrapped driver",
	"lockedmemory/sessionstore/*.NewColocated*": "as Open, for sessionstore.New with a wrapped driver",
	"lockedmemory.Lease":                        "for inner memories: sessionstore calls it",
	"lockedmemory.LockedMemory.Search":          "as Load, with a query",
	"lockedmemory/sessionstore.Store.*":         "LockedMemory has the same methods, with Examples",
	"lockedmemory/sessionstore.JSON.*":          "the store calls the methods of a Codec",
	"lockedmemory/sessionstore.StaleError.*":    "errors.Is and Observers call it",
}

// The packages of the root module that users import. belugamemory has Examples of its own.
func TestExamples_everyEntryPointHasOne(t *testing.T) {
	used := map[string]bool{}
	shown := 0
	for _, e := range EntryPoints(t, modulePath+"distlock/...", modulePath+"lockedmemory/...", modulePath+"tracing/...") {
		if e.Shown {
			shown++
			continue
		}
		excepted := false
		for pattern := range withoutExample {
			if excepts(t, pattern, e.Name) {
				used[pattern], excepted = true, true
			}
		}
		if !excepted {
			t.Errorf("%s has no Example", e.Name)
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

// One planted package shows each case: an Example by name, by a use, and none. A function of another type
// with the same name does not count.
func TestExamples_plantedPackage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/lock\n",
		"lock.go": "package lock\n\ntype Lock struct{}\n\nfunc New() Lock { return Lock{} }\n\n" +
			"func (Lock) Hold() {}\n\nfunc (Lock) Drop() {}\n\ntype Other struct{}\n\nfunc (Other) New() {}\n",
		"lock_test.go": "package lock_test\n\nimport \"example.com/lock\"\n\nfunc ExampleLock_Hold() { lock.New().Hold() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	got := map[string]bool{}
	for _, e := range EntryPoints(t, "./...") {
		got[e.Name] = e.Shown
	}
	want := map[string]bool{"example.com/lock.New": true, "example.com/lock.Lock.Hold": true,
		"example.com/lock.Lock.Drop": false, "example.com/lock.Other.New": false}
	if !maps.Equal(got, want) {
		t.Errorf("the entry points with an Example are %v, want %v", got, want)
	}
}
