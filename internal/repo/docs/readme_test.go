package docs

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/testservers"
)

func TestReadme_programPrintsWhatItSays(t *testing.T) {
	t.Parallel()
	program, output := ReadPage(t, "README.md").Program(t)
	if got := Run(t, Build(t, program, testservers.StartRedis(t).Addr())); got != output {
		t.Errorf("it printed %q, the README says %q", got, output)
	}
}

// It is run twice, as the page says it can be.
func TestTurns_programPrintsWhatItSays(t *testing.T) {
	t.Parallel()
	program, output := ReadPage(t, "docs/turns.md").Program(t)
	binary := Build(t, program, testservers.StartRedis(t).Addr())
	for range 2 {
		if got := Run(t, binary); got != output {
			t.Errorf("it printed %q, the page says %q", got, output)
		}
	}
}

func TestReadme_turnsAreLostWithoutTheLock(t *testing.T) {
	t.Parallel()
	program, output := ReadPage(t, "README.md").Program(t)
	unlocked := strings.Replace(program, `locker.Do(ctx, "session-123", turn)`, "turn(ctx)", 1)
	if unlocked == program {
		t.Fatal("the call that the README speaks of is not in its program")
	}
	if got := Run(t, Build(t, unlocked, testservers.StartRedis(t).Addr())); got == output || !strings.HasSuffix(got, " of 10 turns kept\n") {
		t.Errorf("it printed %q", got)
	}
}
