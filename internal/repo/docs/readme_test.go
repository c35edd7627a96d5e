package docs

import (
	"regexp"
	"slices"
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

// A caller whose session is held is told of at least one turn before its own.
func TestDocs_refusedTurn_countsTheHolder(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/guide.md", "docs/turns.md"} {
		blocks := ReadPage(t, page).blocks
		at := slices.IndexFunc(blocks, func(b block) bool { return strings.Contains(b.text, "busy.Waiters") })
		if at < 0 {
			t.Errorf("%s has no example of a refused turn", page)
			continue
		}
		source, err := code.source(blocks[at])
		if err != nil {
			t.Fatal(err)
		}
		program := strings.NewReplacer("package block", refusing, "func _(", "func ask(").Replace(source) + holding
		if got := Run(t, Build(t, program, testservers.StartRedis(t).Addr())); !strings.Contains(got, "One moment") || regexp.MustCompile(`\b0\b`).MatchString(got) {
			t.Errorf("%s: %q, while another turn has the session", page, got)
		}
	}
}

// The rest of a program around an example that calls Turn: another turn has the session.
const (
	refusing = `package main
import "github.com/redis/go-redis/v9"
import "github.com/belugalock/belugalock/distlock/redislock"`
	holding = `
type inner struct{ lockedmemory.Memory[string, string] }

func main() {
	locker, err := redislock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(inner{}, locker, lockedmemory.FixedKey("s"), &lockedmemory.Options{Busy: lockedmemory.Refuse})
	if err != nil {
		panic(err)
	}
	refused := make(chan error)
	err = memory.Turn(context.Background(), func(context.Context) error {
		go func() { refused <- ask(context.Background(), memory, nil) }()
		return <-refused
	})
	if err != nil {
		panic(err)
	}
}
`
)
