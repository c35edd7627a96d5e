package docs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

var code = Code{
	Given: map[string]string{
		"client":    "*redis.Client",
		"ctx":       "context.Context",
		"id":        "string",
		"locker":    "*distlock.Locker",
		"mem":       "lockedmemory.Memory[string, string]",
		"memory":    "*lockedmemory.LockedMemory[string, string]",
		"newDriver": "func(dir string) driver.Driver",
		"model":     "func(ctx context.Context, history []string, question string) (string, error)",
		"place":     "lockedmemory.Place",
		"pool":      "*pgxpool.Pool",
		"question":  "string",
		"r":         "*http.Request",
		"send":      "func(event, text string)",
		"server":    "*http.Server",
		"session":   "lockedmemory.KeyFunc",
		"stream":    "func(ctx context.Context, history []string, question string) iter.Seq2[string, error]",
		"store":     "*sessionstore.Store[string, string]",
		"t":         "*testing.T",
		"tool":      "func(ctx context.Context, call, key string, fence int64) (string, error)",
		"turn":      "func(context.Context) error",
	},
	Importable: map[string]string{
		"context": "context", "errors": "errors", "fmt": "fmt", "iter": "iter", "log": "log", "os": "os",
		"slices": "slices", "strings": "strings", "syscall": "syscall", "testing": "testing", "time": "time",
		"http": "net/http", "signal": "os/signal", "slog": "log/slog", "sql": "database/sql", "synctest": "testing/synctest",

		"redis":   "github.com/redis/go-redis/v9",
		"pgx":     "github.com/jackc/pgx/v5",
		"pgxpool": "github.com/jackc/pgx/v5/pgxpool",

		"distlock": modulePath + "/distlock", "lockurl": modulePath + "/distlock/lockurl",
		"driver": modulePath + "/distlock/driver", "drivertest": modulePath + "/distlock/drivertest",
		"memlock": modulePath + "/distlock/memlock", "pglock": modulePath + "/distlock/pglock",
		"redislock": modulePath + "/distlock/redislock", "redlock": modulePath + "/distlock/redlock",
		"lockedmemory": modulePath + "/lockedmemory", "tracing": modulePath + "/tracing",
		"sessionstore": modulePath + "/lockedmemory/sessionstore",
		"memstore":     modulePath + "/lockedmemory/sessionstore/memstore",
		"pgstore":      modulePath + "/lockedmemory/sessionstore/pgstore",
		"redisstore":   modulePath + "/lockedmemory/sessionstore/redisstore",
	},
}

const modulePath = "github.com/belugalock/belugalock"

// databaseURL is the address of the database of compose.yaml.
const databaseURL = "postgres://postgres:belugalock@localhost:5432/belugalock"

// All code of the pages compiles. Each program prints its output, twice: a reader may run a program again.
func TestCode_compilesAndPrintsItsOutput(t *testing.T) {
	t.Parallel()
	sources := code.sources(t, allPages(t))
	var programs []block
	for _, b := range blocks(Pages(t), "go") {
		if b.comments["run by"] != "" || !strings.HasPrefix(b.text, "package main\n") {
			continue
		}
		// The program gets servers of its own.
		if strings.Contains(b.text, databaseURL) {
			b.text = strings.ReplaceAll(b.text, databaseURL, servers.SharedPostgres(t).NewDatabase(t).URL())
		} else if strings.Contains(b.text, "localhost:6379") {
			b.text = strings.ReplaceAll(b.text, "localhost:6379", servers.StartRedis(t).Addr())
		}
		sources[b.packageName()] = b.text
		programs = append(programs, b)
	}
	if len(programs) < 2 {
		t.Errorf("the pages have %d programs", len(programs))
	}
	binaries := build(t, sources)
	for _, b := range programs {
		t.Run(b.packageName(), func(t *testing.T) {
			t.Parallel()
			for range 2 {
				if got := Run(t, filepath.Join(binaries, b.packageName())); got != b.output {
					t.Errorf("%s: it printed %q, the page says %q", b, got, b.output)
				}
			}
		})
	}
}

func TestRedlock3_programPrintsItsOutput(t *testing.T) {
	t.Parallel()
	program := blocks([]Page{readPage(t, "docs/howto/redlock.md")}, "go")[0]
	quorum := servers.StartQuorum(t, 3)
	for i, node := range quorum.Nodes() {
		program.text = strings.ReplaceAll(program.text, "localhost:"+strconv.Itoa(7001+i), node.Addr())
	}
	binary := Build(t, program.text)
	for _, node := range quorum.Nodes() {
		servers.Await(t, 20*time.Second, "the restart delay is over", func() bool {
			up, err := strconv.Atoi(node.Info("uptime_in_seconds"))
			return err == nil && up >= 7
		})
	}
	if got := Run(t, binary); got != program.output {
		t.Errorf("it printed %q, the page says %q", got, program.output)
	}
}

// Each block that names a program stands in the program, also at a deeper indent.
func TestCode_quotesStandInTheirPrograms(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(Pages(t), "go") {
		from := b.comments["from"]
		if from == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(from)))
		if err != nil || !strings.Contains(unindented(string(text)), unindented(b.text)) {
			t.Errorf("%s: the block is no part of %s: %v", b, from, err)
		}
	}
}

// unindented returns lines without their indents, each after a line break.
func unindented(text string) (all string) {
	for line := range strings.Lines(text) {
		all += "\n" + strings.TrimSpace(line)
	}
	return all + "\n"
}
