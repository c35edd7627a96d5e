package directions

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Users of the lock alone build it where Beluga cannot be downloaded, and without ADK. make check runs go
// mod tidy, which requires the imports of all files, whatever their build tags.
func TestFrameworks_areNotInTheRootsModuleGraph(t *testing.T) {
	cmd := exec.Command("go", "mod", "graph")
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod graph: %v", err)
	}
	if !strings.Contains(string(out), "github.com/redis/go-redis/v9@") {
		t.Fatalf("the graph does not name go-redis, so this is not the root's:\n%s", out)
	}
	for edge := range strings.Lines(string(out)) {
		if strings.Contains(edge, "github.com/lookatitude/beluga-ai/") || strings.Contains(edge, "google.golang.org/adk/") {
			t.Errorf("the module graph has %s", edge)
		}
	}
}
