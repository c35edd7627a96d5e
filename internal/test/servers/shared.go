package servers

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Sharing runs the tests of a package and then ends the servers that they have shared. TestMain
// uses it in the place of its M:
//
//	func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }
type Sharing struct{ M *testing.M }

// Run returns the exit code of the tests.
func (s Sharing) Run() int {
	defer shared.end()
	return s.M.Run()
}

// databases is the number of databases of the shared Redis. SharedRedis uses all but number 0, in
// turn.
const databases = 256

var (
	shared      forTests
	sharedRedis = sync.OnceValue(func() *Redis { return StartRedis(&shared, "--databases", strconv.Itoa(databases)) })
	lastDB      atomic.Int64

	sharedTopologies = map[string]func() *Topology{
		"sentinel": sync.OnceValue(func() *Topology { return StartTopology(&shared, "sentinel") }),
		"cluster":  sync.OnceValue(func() *Topology { return StartTopology(&shared, "cluster") }),
	}
)

// SharedServer returns the Redis that the tests of a package share, which the first call starts.
// Tests in its database 0 use names of their own. They do not kill, stop or configure the server.
// The package needs Sharing in its TestMain.
func SharedServer() *Redis { return sharedRedis() }

// Database is one database of the Redis that the tests of a package share. What it has in common
// with the others, like users, channels and scripts, tests must not change.
type Database struct {
	server *Redis
	number int
}

// SharedRedis returns an empty database of the package's Redis, which the first call starts. The
// package needs Sharing in its TestMain.
func SharedRedis(tb testing.TB) *Database {
	tb.Helper()
	d := &Database{sharedRedis(), int(1 + lastDB.Add(1)%(databases-1))}
	if _, err := d.Do("FLUSHDB"); err != nil {
		tb.Fatalf("empty a database: %v", err)
	}
	return d
}

// Addr returns the host and port.
func (d *Database) Addr() string { return d.server.Addr() }

// DB returns the number of the database.
func (d *Database) DB() int { return d.number }

// URL returns the database as a redis:// URL.
func (d *Database) URL() string { return fmt.Sprintf("redis://%s/%d", d.Addr(), d.number) }

// Do is that of Redis, in this database.
func (d *Database) Do(args ...string) (string, error) {
	return do(d.Addr(), doTimeout, []string{"SELECT", strconv.Itoa(d.number)}, args)
}

// SharedTopology returns a topology of several servers that the tests of a package share: they keep
// to names of their own, and kill nothing. The package needs Sharing in its TestMain.
func SharedTopology(name string) *Topology { return sharedTopologies[name]() }

// forTests is the testing.TB of servers that outlive a test. A server that cannot be started panics
// in the test that is the first to need it, and in all others.
type forTests struct {
	testing.TB // of the methods that are not here servers call none

	failed bool
	log    strings.Builder

	mu      sync.Mutex
	cleanup []func()
}

// ForProgram starts servers for a program that is no test. They run until stop is called, which removes their
// files.
func ForProgram[S any](start func(tb testing.TB) S) (servers S, stop func(), err error) {
	var owner forTests
	defer func() {
		if failure := recover(); failure != nil {
			owner.failed = true
			owner.end()
			err = fmt.Errorf("%v\n%s", failure, owner.log.String())
		}
	}()
	return start(&owner), owner.end, nil
}

func (f *forTests) Helper()                        {}
func (f *forTests) Failed() bool                   { return f.failed }
func (f *forTests) Logf(format string, a ...any)   { fmt.Fprintf(&f.log, format, a...) }
func (f *forTests) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (f *forTests) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func (f *forTests) Cleanup(end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanup = append(f.cleanup, end)
}

func (f *forTests) TempDir() string {
	dir, err := os.MkdirTemp("", "testservers")
	if err != nil {
		f.Fatalf("directory of a server: %v", err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end ends the servers.
func (f *forTests) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, end := range slices.Backward(f.cleanup) {
		end()
	}
}
