package docs

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/testservers"
)

// serverOf returns the kind of server that a program uses, by the address in it, and that address.
func serverOf(p Program) (kind, address string) {
	for _, c := range []struct{ kind, mark string }{
		{"arguments", "os.Args"},
		{"another module", "github.com/lookatitude/beluga-ai"},
		{"another module", code.Without[0]},
		{"quorum", "localhost:7001"},
		{"postgres", databaseURL},
		{"redis", "localhost:6379"},
	} {
		if strings.Contains(p.Source, c.mark) {
			return c.kind, c.mark
		}
	}
	return "none", ""
}

// Each program is run twice: a reader may do that.
func TestPrograms_printTheirOutput(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	for _, p := range Pages(t) {
		for _, program := range p.Programs() {
			kind, address := serverOf(program)
			ran[kind]++
			server := ""
			switch kind {
			case "redis":
				server = testservers.StartRedis(t).Addr()
			case "postgres":
				server = testservers.SharedPostgres(t).NewDatabase(t).URL()
			case "arguments", "quorum", "another module":
				// See TestQuickstart_commandsPrintTheirOutput, TestRedlock3_programPrintsItsOutput, and
				// the tests of belugamemory and collectortest.
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", program.Page, program.Line), func(t *testing.T) {
				t.Parallel()
				binary := build(t, strings.ReplaceAll(program.Source, cmp.Or(address, server), server))
				for range 2 {
					if got := Run(t, binary); got != program.Output {
						t.Errorf("it printed %q, the page says %q", got, program.Output)
					}
				}
			})
		}
	}
	if ran["redis"] == 0 || ran["postgres"] == 0 || ran["quorum"] == 0 || ran["another module"] < 2 {
		t.Errorf("the pages have programs for %v", ran)
	}
}

func TestReadme_turnsAreLostWithoutTheLock(t *testing.T) {
	t.Parallel()
	program := UnlockedProgram.Program(t)
	unlocked := strings.Replace(program.Source, `locker.Do(ctx, "session-123", turn)`, "turn(ctx)", 1)
	if unlocked == program.Source {
		t.Fatal("the call that the README speaks of is not in its program")
	}
	if got := Run(t, Build(t, unlocked, testservers.StartRedis(t).Addr())); got == program.Output || !strings.HasSuffix(got, " of 10 turns kept\n") {
		t.Errorf("it printed %q", got)
	}
}

// A caller whose session is held learns of at least one turn before its own.
func TestDocs_refusedTurn_countsTheHolder(t *testing.T) {
	t.Parallel()
	examples := 0
	for _, p := range Pages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" || !strings.Contains(b.text, "busy.Waiters") {
				continue
			}
			examples++
			source, err := code.source(b)
			if err != nil {
				t.Fatal(err)
			}
			program := strings.NewReplacer("package block", refusing, "func _(", "func ask(").Replace(source) + holding
			if got := Run(t, Build(t, program, testservers.StartRedis(t).Addr())); !strings.Contains(got, "One moment") || regexp.MustCompile(`\b0\b`).MatchString(got) {
				t.Errorf("%s:%d: %q, while another turn has the session", b.page, b.line, got)
			}
		}
	}
	if examples == 0 {
		t.Error("no page has an example of a refused turn")
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
