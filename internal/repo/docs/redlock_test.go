package docs

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

// It prints the same with three nodes and with two.
func TestRedlock3_programPrintsWhatItSays(t *testing.T) {
	t.Parallel()
	program, output := ReadPage(t, "docs/redlock.md").Program(t)
	const ttl = "5 * time.Second"
	if !strings.Contains(program, "TTL: "+ttl) {
		t.Fatal("the program has another TTL than " + ttl)
	}
	nodes := testservers.StartQuorum(t, 3).Nodes()
	for i, node := range nodes {
		program = strings.ReplaceAll(program, "localhost:700"+strconv.Itoa(i+1), node.Addr())
	}
	binary := build(t, program)
	testservers.Await(t, 20*time.Second, "the nodes are up for longer than the TTL", func() bool {
		up, err := strconv.Atoi(nodes[2].Info("uptime_in_seconds"))
		return err == nil && up >= 7
	})
	for range 2 {
		if got := Run(t, binary); got != output {
			t.Errorf("it printed %q, the page says %q", got, output)
		}
		nodes[0].Kill()
	}
}
