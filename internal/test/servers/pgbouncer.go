package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// PgBouncer is a PgBouncer before one PostgreSQL. Whatever user a client names, PgBouncer logs in
// as the superuser.
type PgBouncer struct{ *daemon }

// StartPgBouncer starts a PgBouncer on a free port of 127.0.0.1 and returns once it listens. The
// mode is "session", "transaction" or "statement": how long a client keeps a connection to the
// server. There are up to 20 of these for a database.
func StartPgBouncer(tb testing.TB, server *Postgres, mode string) *PgBouncer {
	tb.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // of Debian, where an ordinary user's PATH does not lead
	}
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("PgBouncer is needed but was not found: "+
			"run `make deps`, or install it, for example with `apt-get install pgbouncer` (%v)", err)
	}
	// On SIGQUIT all versions end at once; some wait for their clients on SIGTERM.
	b := &PgBouncer{newUnprivileged(tb, "pgbouncer", "", syscall.SIGQUIT)}
	config := filepath.Join(b.dir, "pgbouncer.ini")
	b.command = func([]string) (string, []string) {
		text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
max_client_conn = 1000
`, server.port, b.port, mode)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			tb.Errorf("configure PgBouncer: %v", err)
		}
		return path, []string{config}
	}
	b.ready = func() bool { return strings.Contains(b.output(), "process up") }
	b.mustLaunch()
	return b
}

// URL returns a database of the server behind the PgBouncer as a postgres:// URL.
func (b *PgBouncer) URL(database string) string { return postgresURL(b.Addr(), database) }
