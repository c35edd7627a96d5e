package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The programs, and what each writes to its log once its port is bound.
var readyLine = map[string]string{
	"redis-server":   "Ready to accept connections",
	"redis-sentinel": "Sentinel ID is",
}

// Redis is one redis-server without persistence, alone or as a node of a Sentinel or Cluster, or
// one redis-sentinel.
type Redis struct {
	*daemon
	config  string // the file that the server rewrites to remember its role; empty: none
	args    []string
	setup   []string // a command for each start; none
	cluster bool
}

// StartRedis starts a redis-server with args such as "--maxmemory", "8mb", and returns once it
// answers. The args leave port, bind address and log alone.
func StartRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	r := newServer(tb, "redis-server", args)
	launch(tb, r)
	return r
}

// newServer prepares a server and its cleanup. It fails the test if the program is not installed.
func newServer(tb testing.TB, program string, args []string) *Redis {
	tb.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		tb.Fatalf("%s is needed but was not found: "+
			"run `make deps`, or install it, for example with `apt-get install %[1]s` (%v)", program, err)
	}
	r := &Redis{daemon: newDaemon(tb, program, tb.TempDir(), syscall.SIGTERM), args: slices.Clone(args)}
	r.taken = "Failed listening on port"
	r.command = func(more []string) (string, []string) {
		var first []string
		if r.config != "" {
			first = append(first, r.config)
		}
		first = append(first, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir, "--save", "", "--appendonly", "no")
		if r.cluster {
			first = append(first, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(r.busPort()))
		}
		return path, slices.Concat(first, r.args, more)
	}
	r.ready = r.answers
	return r
}

// busPort is where the other nodes of a cluster find the server.
func (r *Redis) busPort() int { return r.port - 10_000 }

// remember gives the server a configuration file, in which it keeps the role it has come to have.
func (r *Redis) remember(tb testing.TB) {
	tb.Helper()
	r.config = filepath.Join(r.dir, r.program+".conf")
	if err := os.WriteFile(r.config, nil, 0o600); err != nil {
		tb.Fatalf("configuration of a %s: %v", r.program, err)
	}
}

// launch starts servers side by side and returns once all of them answer. It fails the test if one
// does not.
func launch(tb testing.TB, servers ...*Redis) {
	tb.Helper()
	// Their own cleanups would end them one after the other.
	tb.Cleanup(func() { each(servers, func(_ int, r *Redis) { r.Kill() }) })
	errs := make([]error, len(servers))
	each(servers, func(i int, r *Redis) { errs[i] = r.launch() })
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("%v", err)
	}
}

// each calls fn for all servers at once and returns when all calls have.
func each(servers []*Redis, fn func(int, *Redis)) {
	var wg sync.WaitGroup
	for i, r := range servers {
		wg.Go(func() { fn(i, r) })
	}
	wg.Wait()
}

// Addrs returns Addr, as a Topology does.
func (r *Redis) Addrs() []string { return []string{r.Addr()} }

// Nodes returns the server itself, as a Topology does.
func (r *Redis) Nodes() []*Redis { return []*Redis{r} }

// URL returns the server's address as a redis:// URL of database 0.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

// Do sends one command over a connection of its own. It returns a text, the digits of an integer,
// or the elements of an array joined by newlines; a nil is the empty string. Do gives up after 5
// seconds.
func (r *Redis) Do(args ...string) (string, error) { return do(r.Addr(), doTimeout, args) }

// probe is Do while other servers are waited for.
func (r *Redis) probe(args ...string) (string, error) {
	reply, err := do(r.Addr(), time.Second, args)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", r.program, r.Addr(), err)
	}
	return reply, nil
}

// answers asks the log first. An answer alone does not tell whose it is: when two tests have chosen
// the same port, the loser would take the winner's server for its own. The log line is written
// after the port was bound.
func (r *Redis) answers() bool {
	if !strings.Contains(r.output(), readyLine[r.program]) {
		return false
	}
	_, err := r.probe("PING")
	if err == nil && r.setup != nil {
		_, err = r.probe(r.setup...)
	}
	// A server that demands a password refuses the PING, and is ready.
	return err == nil || errors.As(err, new(replyError))
}
