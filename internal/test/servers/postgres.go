package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres is one PostgreSQL server with the encoding UTF8 and the locale C.UTF-8. Its superuser
// "postgres" needs no password; every other user needs one.
type Postgres struct {
	*daemon
	programs  string // where initdb and postgres are
	settings  []string
	databases atomic.Int64
}

var sharedPostgres = sync.OnceValue(func() *Postgres { return StartPostgres(&shared) })

// SharedPostgres returns the PostgreSQL that the tests of a package share, which the first call
// starts. Tests keep to databases of their own, from NewDatabase. They do not kill, stop or
// configure the server. The package needs Sharing in its TestMain.
func SharedPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	return sharedPostgres()
}

// StartPostgres starts a PostgreSQL with settings such as "max_connections=20", and returns once it
// accepts connections. The server does not wait for its disk: commits survive Kill, and a test that
// measures commits needs "fsync=on". If the test process is root, the server runs as the user
// postgres.
func StartPostgres(tb testing.TB, settings ...string) *Postgres {
	tb.Helper()
	p := newPostgres(tb, settings)
	p.exec("initdb", "--pgdata="+p.data(), "--username=postgres", "--auth=trust", "--no-sync",
		"--encoding=UTF8", "--locale=C.UTF-8")
	if err := os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte(hostAccess), 0o600); err != nil {
		tb.Fatalf("configure PostgreSQL: %v", err)
	}
	p.mustLaunch()
	return p
}

// hostAccess is pg_hba.conf, which initdb has written for the user of the server. A password comes in
// clear: SCRAM costs a client under the race detector more than all other work of a connection.
const hostAccess = `
host all         postgres 127.0.0.1/32 trust
host replication postgres 127.0.0.1/32 trust
host all         all      127.0.0.1/32 password
`

// newUnprivileged prepares a server that refuses to run as root, with its files in a directory.
func newUnprivileged(tb testing.TB, program, where string, quit syscall.Signal) *daemon {
	tb.Helper()
	// A test's own directory does not do: its parent is closed to other users.
	dir, err := os.MkdirTemp(where, "testservers")
	attr, refused := unprivileged()
	if err := errors.Join(err, refused, giveAway(dir)); err != nil {
		tb.Fatalf("directory of a %s: %v", program, err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the files of %s: %v", program, err)
		}
	})
	d := newDaemon(tb, program, dir, quit)
	d.attr, d.taken = attr, "Address already in use"
	return d
}

func (d *daemon) mustLaunch() {
	d.tb.Helper()
	if err := d.launch(); err != nil {
		d.tb.Fatalf("%v", err)
	}
}

func newPostgres(tb testing.TB, settings []string) *Postgres {
	tb.Helper()
	programs, err := postgresPrograms()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	where := inMemory()
	if slices.Contains(settings, "fsync=on") {
		where = os.TempDir()
	}
	// SIGINT is PostgreSQL's fast shutdown.
	p := &Postgres{daemon: newUnprivileged(tb, "postgres", where, syscall.SIGINT), programs: programs, settings: slices.Clone(settings)}
	p.command = func([]string) (string, []string) {
		args := []string{"-D", p.data(), "-p", strconv.Itoa(p.port)}
		for _, setting := range slices.Concat(defaultSettings, p.settings) {
			args = append(args, "-c", setting)
		}
		return filepath.Join(p.programs, "postgres"), args
	}
	p.ready = func() bool {
		status := p.status()
		return len(status) > 7 && status[0] == strconv.Itoa(p.proc.cmd.Process.Pid) &&
			(status[7] == "ready" || status[7] == "standby")
	}
	// Runs before the directory is removed.
	tb.Cleanup(p.removeSharedMemory)
	return p
}

var defaultSettings = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=",
	"fsync=off",
	"max_connections=200",
	"dynamic_shared_memory_type=mmap", // in the server's directory, so that a killed server leaves nothing
}

// postgresPrograms returns the directory of the server's programs. Debian does not have it on PATH.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the other programs are beside it
		return filepath.Dir(path), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("PostgreSQL is needed but was not found: " +
			"run `make deps`, or install it, for example with `apt-get install postgresql`")
	}
	version := func(path string) int {
		v, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return v
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// exec runs one of PostgreSQL's programs to its end.
func (p *Postgres) exec(program string, args ...string) {
	p.tb.Helper()
	cmd := exec.Command(filepath.Join(p.programs, program), args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, p.attr
	if out, err := cmd.CombinedOutput(); err != nil {
		p.tb.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// status returns the lines of postmaster.pid: the process is number 0, the shared memory number 6,
// the state number 7. The file is missing unless the server runs or was killed.
func (p *Postgres) status() (lines []string) {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.tb.Errorf("status of PostgreSQL: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func (p *Postgres) removeSharedMemory() {
	p.Kill()
	if status := p.status(); len(status) > 6 {
		if fields := strings.Fields(status[6]); len(fields) == 2 {
			if id, err := strconv.Atoi(fields[1]); err == nil {
				removeSharedMemory(id)
			}
		}
	}
}

// URL returns a database as a postgres:// URL of the superuser.
func (p *Postgres) URL(database string) string { return postgresURL(p.Addr(), database) }

func postgresURL(addr, database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", addr, database)
}

// Do sends SQL to the database "postgres", as that of PostgresDatabase does.
func (p *Postgres) Do(sql string) (string, error) { return query(p.URL("postgres"), sql) }

// PostgresDatabase is one database of a PostgreSQL.
type PostgresDatabase struct {
	server *Postgres
	name   string
}

// NewDatabase makes an empty database, which lasts as long as its server. To drop it would cost more
// than to make it.
func (p *Postgres) NewDatabase(tb testing.TB) *PostgresDatabase {
	tb.Helper()
	name := fmt.Sprintf("test%d", p.databases.Add(1))
	if _, err := p.Do("CREATE DATABASE " + name + " STRATEGY file_copy"); err != nil {
		tb.Fatalf("make a database: %v", err)
	}
	return &PostgresDatabase{p, name}
}

// Database returns a database that the server has, for example that of its primary.
func (p *Postgres) Database(name string) *PostgresDatabase { return &PostgresDatabase{p, name} }

// Name returns the database's name.
func (d *PostgresDatabase) Name() string { return d.name }

// URL returns the database as a postgres:// URL of the superuser.
func (d *PostgresDatabase) URL() string { return d.server.URL(d.name) }

// Do sends SQL, which may be several statements, over a connection of its own. It returns the rows
// of the last one: columns are joined by bars and rows by newlines. NULL is the empty string. Do
// gives up after 5 seconds.
func (d *PostgresDatabase) Do(sql string) (string, error) { return query(d.URL(), sql) }

func query(url, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), doTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) == 0 {
		return "", err
	}
	var rows []string
	for _, row := range results[len(results)-1].Rows {
		columns := make([]string, len(row))
		for i, value := range row {
			columns[i] = string(value)
		}
		rows = append(rows, strings.Join(columns, "|"))
	}
	return strings.Join(rows, "\n"), nil
}
