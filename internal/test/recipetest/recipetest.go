// Package recipetest runs a program of examples as a process of its own. The test binary is the
// program, so the program has the race detector, too.
//
//	func TestMain(m *testing.M) { recipetest.Main(m, main) }
package recipetest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const asProgram = "BELUGALOCK_RECIPE"

// Main runs the program in a process of Start, and else the tests, which may share servers.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// EachBackend runs a test with the URLs of a lock service on each backend, and of a database with its schema.
func EachBackend(t *testing.T, test func(t *testing.T, lock, database string)) {
	t.Helper()
	for _, backend := range []string{"redis", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			lock, database := servers.SharedRedis(t).URL(), migrated.Database(t, servers.SharedPostgres(t)).URL()
			if backend == "postgres" {
				lock = database
			}
			test(t, lock, database)
		})
	}
}

// Pool opens a database until the end of the test.
func Pool(tb testing.TB, database string) *pgxpool.Pool {
	tb.Helper()
	db, err := pgxpool.New(tb.Context(), database)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(db.Close)
	return db
}

// Locker opens a lock service until the end of the test.
func Locker(tb testing.TB, lock string, opts *distlock.Options) *distlock.Locker {
	tb.Helper()
	locker, err := lockurl.Open(tb.Context(), lock, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

// Process is the program as a process. The test ends the process.
type Process struct {
	*os.Process

	tb    testing.TB
	ended chan struct{}
	err   error // of the process, once ended

	mu     sync.Mutex
	output strings.Builder
}

// Start starts the program with these arguments.
func Start(tb testing.TB, args ...string) *Process {
	tb.Helper()
	cmd := exec.Command(os.Args[0], args...)
	// Without this setting, the race detector lets every process sleep for a second before its end.
	cmd.Env = append(os.Environ(), asProgram+"=yes", "GORACE=atexit_sleep_ms=0")
	p := &Process{tb: tb, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if err := child.Start(cmd, func() { p.err = cmd.Wait(); close(p.ended) }); err != nil {
		tb.Fatal(err)
	}
	p.Process = cmd.Process
	tb.Cleanup(func() {
		_ = p.Kill()
		<-p.ended
		if tb.Failed() {
			tb.Logf("output of a process:\n%s", p.Output())
		}
	})
	return p
}

// Write takes the output of the program.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(text)
}

// Output returns what the program has written to stdout and stderr until now.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// Await waits for a line that contains a text, and returns the part of the line after the text.
func (p *Process) Await(text string) (rest string) {
	p.tb.Helper()
	servers.Await(p.tb, 30*time.Second, "the program prints "+text, func() bool {
		ended := p.hasEnded()
		_, after, _ := strings.Cut(p.Output(), text)
		line, _, whole := strings.Cut(after, "\n")
		if ended && !whole {
			p.tb.Fatalf("the program ends without printing %q: %v", text, p.err)
		}
		rest = line
		return whole
	})
	return rest
}

// Wait waits for at most a minute for the end of the process. It returns the error of exec.Cmd.Wait.
func (p *Process) Wait() error {
	p.tb.Helper()
	servers.Await(p.tb, time.Minute, "the program ends", p.hasEnded)
	return p.err
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
