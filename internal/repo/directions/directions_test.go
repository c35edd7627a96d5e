// Package directions keeps the import directions of this module: what the core may know, and what
// may know the core.
package directions

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/belugalock/belugalock/"

// allowed lists for every package what it may import besides the standard library; a trailing
// "/..." includes what is below. Paths without a dot in their first element belong to this module.
var allowed = map[string][]string{
	"distlock/driver":                       {},
	"distlock/internal/cleanup":             {"distlock/driver"},
	"distlock/internal/trust":               {},
	"distlock/internal/seam":                {"distlock/driver"},
	"distlock/fencing":                      {"distlock", "distlock/driver", "distlock/internal/seam"},
	"distlock":                              {"distlock/driver", "distlock/internal/...", "internal/lastwrite"},
	"internal/lastwrite":                    {"distlock/driver"},
	"distlock/internal/queue":               {},
	"distlock/drivertest":                   {"distlock/driver"},
	"distlock/memlock":                      {"distlock", "distlock/driver"},
	"distlock/redislock":                    {"distlock", "distlock/driver", "internal/redisconn", "internal/rediskeys", "internal/rediskinds", "internal/redisurl", "github.com/redis/go-redis/v9/..."},
	"distlock/redlock":                      {"distlock", "distlock/driver", "distlock/redlock/internal/quorum", "internal/redisconn", "internal/rediskeys", "internal/rediskinds", "internal/redisurl", "github.com/redis/go-redis/v9/..."},
	"distlock/redlock/internal/quorum":      {"distlock/driver"},
	"distlock/pglock":                       {"distlock", "distlock/driver", "distlock/fencing", "internal/postgres", "github.com/jackc/pgx/v5/..."},
	"distlock/lockurl":                      {"distlock/...", "internal/redisurl"},
	"distlock/election":                     {"distlock", "distlock/fencing"},
	"distlock/internal/loglimit":            {},
	"internal/redisconn":                    {"github.com/redis/go-redis/v9/..."},
	"internal/rediskeys":                    {"internal/redisconn", "github.com/redis/go-redis/v9/..."},
	"internal/rediskinds":                   {"distlock/driver", "internal/redisconn", "github.com/redis/go-redis/v9/..."},
	"internal/redisurl":                     {"github.com/redis/go-redis/v9/..."},
	"internal/retry":                        {"distlock/driver"},
	"internal/settings":                     {},
	"internal/postgres":                     {"distlock", "distlock/driver", "github.com/jackc/pgx/v5/..."},
	"lockedmemory":                          {"distlock", "distlock/driver", "distlock/fencing", "internal/lastwrite"},
	"lockedmemory/inbox":                    {"distlock", "distlock/fencing", "lockedmemory", "lockedmemory/sessionstore", "lockedmemory/sessionstore/storedriver"},
	"lockedmemory/sessionstore/storedriver": {"distlock", "lockedmemory"},
	"lockedmemory/sessionstore":             {"distlock", "distlock/driver", "distlock/fencing", "internal/lastwrite", "internal/retry", "lockedmemory", "lockedmemory/sessionstore/storedriver"},
	"lockedmemory/sessionstore/memstore":    {"distlock", "lockedmemory", "lockedmemory/sessionstore", "lockedmemory/sessionstore/storedriver"},
	"lockedmemory/sessionstore/redisstore":  {"distlock", "distlock/driver", "distlock/fencing", "distlock/redislock", "internal/lastwrite", "internal/redisconn", "internal/rediskeys", "internal/rediskinds", "internal/redisurl", "internal/settings", "lockedmemory", "lockedmemory/sessionstore", "lockedmemory/sessionstore/storedriver", "github.com/redis/go-redis/v9/..."},
	"lockedmemory/sessionstore/pgstore":     {"distlock", "distlock/driver", "distlock/fencing", "distlock/pglock", "internal/lastwrite", "internal/postgres", "internal/settings", "lockedmemory", "lockedmemory/sessionstore", "lockedmemory/sessionstore/storedriver", "github.com/jackc/pgx/v5/..."},
	"lockedmemory/sessionstore/storetest":   {"distlock", "distlock/fencing", "internal/lastwrite", "lockedmemory", "lockedmemory/sessionstore", "lockedmemory/sessionstore/storedriver"},
	"tracing":                               {"distlock", "distlock/driver", "distlock/fencing", "lockedmemory", "go.opentelemetry.io/otel/..."},
	"cmd/lockctl/...":                       {"cmd/lockctl/internal/...", "distlock/...", "internal/postgres", "internal/redisurl", "internal/settings", "lockedmemory/...", "github.com/..."},
	"examples/...":                          {"examples/agent/internal/...", "examples/internal/...", "internal/test/child", "internal/test/conversation", "distlock", "distlock/...", "lockedmemory/...", "tracing", "github.com/...", "go.opentelemetry.io/otel/...", "golang.org/x/..."},
	"internal/test/child":                   {},
	"internal/test/faultnet":                {"internal/test/servers"},
	"internal/test/history":                 {"github.com/anishathalye/porcupine"},
	"internal/test/conversation":            {},
	"internal/test/leakcheck":               {"go.uber.org/goleak"},
	"internal/test/servers":                 {"internal/test/child", "github.com/jackc/pgx/v5/...", "golang.org/x/sys/unix"},
}

// forTests are the packages that only tests and these packages may reach. Those of this module
// import anything, unless a rule above says what.
var forTests = []string{
	"testing", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/anishathalye/porcupine",
	module + "distlock/drivertest", module + "lockedmemory/sessionstore/storetest", module + "internal/...",
}

// product are the exceptions.
var product = []string{module + "internal/lastwrite", module + "internal/redisconn", module + "internal/rediskeys", module + "internal/rediskinds", module + "internal/redisurl", module + "internal/postgres", module + "internal/retry", module + "internal/settings", module + "internal/test/child", module + "internal/test/conversation"}

func isForTests(path string) bool { return matches(forTests, path) && !slices.Contains(product, path) }

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestImportDirections(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		rule, ok := ruleFor(name)
		if !ok && !isForTests(p.ImportPath) {
			t.Errorf("%s: no rule says what it may import: add one", name)
		}
		for _, path := range p.Imports {
			if ok && !standard(path) && !matches(rule, strings.TrimPrefix(path, module)) {
				t.Errorf("%s imports %s; allowed are the standard library and %q", name, path, rule)
			}
		}
		for _, path := range p.Deps {
			if isForTests(path) && !isForTests(p.ImportPath) {
				t.Errorf("%s reaches %s, which is for tests only", name, path)
			}
		}
	}
}

// TestImportDirections_coreIsStandardLibraryOnly looks at what is reached, not only at what is imported.
func TestImportDirections_coreIsStandardLibraryOnly(t *testing.T) {
	core := []string{"distlock", "distlock/driver", "distlock/drivertest", "distlock/memlock", "lockedmemory"}
	seen := 0
	for _, p := range list(t) {
		if !slices.Contains(core, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		seen++
		for _, path := range p.Deps {
			if !standard(path) && !strings.HasPrefix(path, module) {
				t.Errorf("%s reaches %s", p.ImportPath, path)
			}
		}
	}
	if seen != len(core) {
		t.Errorf("%d of %d core packages were found", seen, len(core))
	}
}

// The tables and the command line of lockctl reach none of the packages that applications import.
func TestImportDirections_noCommandLineInApplications(t *testing.T) {
	tools := []string{"github.com/spf13/...", "github.com/jedib0t/..."}
	seen := false
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if matches([]string{"cmd/...", "examples/..."}, name) || isForTests(p.ImportPath) {
			seen = seen || name == "cmd/lockctl"
			continue
		}
		for _, path := range p.Deps {
			if matches(tools, path) {
				t.Errorf("%s reaches %s", name, path)
			}
		}
	}
	if !seen {
		t.Error("cmd/lockctl was not found")
	}
}

// Users of one backend do not compile the client of another one. lockurl and the examples choose a
// backend at run time.
func TestImportDirections_oneClientPerBackend(t *testing.T) {
	const redis, postgres = "github.com/redis/go-redis/", "github.com/jackc/"
	without := map[string][]string{
		"distlock/redislock":                   {postgres},
		"distlock/redlock":                     {postgres},
		"lockedmemory/sessionstore/redisstore": {postgres},
		"distlock/pglock":                      {redis},
		"lockedmemory/sessionstore/pgstore":    {redis},
		"lockedmemory/sessionstore":            {redis, postgres},
		"tracing":                              {redis, postgres},
	}
	seen := 0
	for _, p := range list(t) {
		clients := without[strings.TrimPrefix(p.ImportPath, module)]
		seen += min(1, len(clients))
		for _, path := range p.Deps {
			if slices.ContainsFunc(clients, func(client string) bool { return strings.HasPrefix(path, client) }) {
				t.Errorf("%s reaches %s", p.ImportPath, path)
			}
		}
	}
	if seen != len(without) {
		t.Errorf("%d of %d packages were found", seen, len(without))
	}
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func ruleFor(name string) ([]string, bool) {
	if rule, ok := allowed[name]; ok {
		return rule, true
	}
	for pattern, rule := range allowed {
		if matches([]string{pattern}, name) {
			return rule, true
		}
	}
	return nil, false
}

func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		below, isTree := strings.CutSuffix(pattern, "/...")
		return path == below || isTree && strings.HasPrefix(path, below+"/")
	})
}

// standard reports whether path belongs to the standard library, whose first elements have no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
