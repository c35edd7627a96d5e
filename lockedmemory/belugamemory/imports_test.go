package belugamemory

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A program with a memory alone does not compile Beluga's Runner and agents.
func TestImports_ofBeluga(t *testing.T) {
	const module, beluga = "github.com/belugalock/belugalock/lockedmemory/belugamemory",
		"github.com/lookatitude/beluga-ai/v2/"
	for name, without := range map[string][]string{
		"":                   {"agent", "runtime"},
		"/internal/codes":    {"agent", "runtime", "memory", "schema"},
		"/internal/packed":   {""},
		"/internal/services": {"agent", "runtime", "memory", "schema"},
	} {
		for _, path := range reached(t, module+name) {
			for _, no := range without {
				if path == beluga+no || no == "" && strings.HasPrefix(path, beluga) {
					t.Errorf("%s reaches %s", module+name, path)
				}
			}
		}
	}
	if !slices.Contains(reached(t, module+"/belugarunner"), beluga+"runtime") {
		t.Error("belugarunner does not reach Beluga's runtime, so this test can see nothing")
	}
}

// reached returns the packages that a package compiles.
func reached(t *testing.T, name string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}
