package servers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStartPostgres_settingsKeptAfterRestart(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, "max_connections=20", "fsync=on")
	for range 2 {
		mustQuery(t, p, "20", "SHOW max_connections")
		mustQuery(t, p, "on", "SHOW fsync")
		mustQuery(t, p, "UTF8", "SHOW server_encoding")
		p.Restart()
	}
}

func TestStartPostgres_otherServerOnPort_refused(t *testing.T) {
	t.Parallel()
	other := StartPostgres(t)
	p := newPostgres(t, nil)
	p.run("initdb", "--pgdata="+p.data(), "--username=postgres", "--no-sync")
	p.port = other.port
	if err := p.start(); !errors.Is(err, errPortTaken) {
		t.Fatalf("start on a taken port: %v, want %v", err, errPortTaken)
	}
	mustQuery(t, other, "1", "SELECT 1")
}

func TestStartPostgres_wrongSetting_failsWithTheLog(t *testing.T) {
	t.Parallel()
	var tb failing
	msg := tb.message(func() { StartPostgres(&tb, "no_such_setting=1") })
	if !strings.Contains(msg, "ended before it was ready") || !strings.Contains(msg, "no_such_setting") {
		t.Errorf("message %q does not say why the server ended", msg)
	}
}

func TestStartPostgres_cleanup_leavesNothing(t *testing.T) {
	for state, change := range map[string]func(*Postgres){
		"running": func(*Postgres) {},
		"killed":  func(p *Postgres) { p.Kill() },
		"stopped": func(p *Postgres) { p.Stop() },
		"paused":  func(p *Postgres) { p.Pause() },
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			var tb forTests
			p := StartPostgres(&tb)
			children := childrenOf(p.proc.cmd.Process.Pid)
			change(p)
			tb.end()
			mustRefuse(t, p.Addr())
			if !haveEnded(children) {
				t.Errorf("of the processes %v one still runs", children)
			}
			if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
				t.Errorf("its directory is left: %v", err)
			}
		})
	}
}

// A crash keeps committed data, also while a client is connected.
func TestPostgres_restart_keepsTheData(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	addr := p.Addr()
	mustQuery(t, p, "", "CREATE TABLE t (x int)")
	connect(t, p.URL("postgres"))
	restarts := []func(){
		p.Restart,
		func() { p.Kill(); p.Restart() },
		func() { p.Stop(); p.Restart() },
		func() { p.Pause(); p.Restart() },
	}
	for i, restart := range restarts {
		mustQuery(t, p, "", "INSERT INTO t VALUES (1)")
		restart()
		if p.Addr() != addr {
			t.Errorf("restart %d: address %s, want %s", i, p.Addr(), addr)
		}
	}
	mustQuery(t, p, "4", "SELECT count(*) FROM t")
}

// Neither a new connection nor one that has its process already gets an answer.
func TestPostgres_paused_answersNothing(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	conn := connect(t, p.URL("postgres"))
	p.Pause()
	answered := make(chan error, 2)
	go func() { answered <- conn.Exec(t.Context(), "SELECT 1").Close() }()
	go func() { _, err := p.Do("SELECT 1"); answered <- err }()
	select {
	case err := <-answered:
		t.Errorf("a paused server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.Resume()
	if err := errors.Join(<-answered, <-answered); err != nil {
		t.Error(err)
	}
}

func TestNewDatabase_empty_droppedWithTheTest(t *testing.T) {
	p := StartPostgres(&shared)
	defer shared.end()
	var names []string
	for range 2 {
		t.Run("", func(t *testing.T) {
			db := p.NewDatabase(t)
			names = append(names, db.Name())
			if got, err := db.Do("CREATE TABLE t (x int, y text); INSERT INTO t VALUES (1, 'a'), (2, NULL); SELECT x, y FROM t ORDER BY x"); err != nil || got != "1|a\n2|" {
				t.Errorf("rows %q, %v", got, err)
			}
			connect(t, db.URL())
		})
	}
	if names[0] == names[1] {
		t.Errorf("both tests have the database %s", names[0])
	}
	mustQuery(t, p, "0", "SELECT count(*) FROM pg_database WHERE datname LIKE 'test%'")
}

func TestPostgres_otherUsers_needTheirPassword(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	mustQuery(t, p, "", "CREATE ROLE app LOGIN PASSWORD 'secret'")
	for password, want := range map[string]string{"secret": "app", "wrong": ""} {
		url := strings.Replace(p.URL("postgres"), "postgres@", "app:"+password+"@", 1)
		got, err := query(url, "SELECT current_user")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("with the password %q: %q, %v", password, got, err)
		}
	}
}

func TestPostgresPrograms_newestVersionNotOnPath(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir, err := postgresPrograms()
	if err != nil || !strings.HasPrefix(dir, "/usr/lib/postgresql/") {
		t.Errorf("the programs are in %q, %v", dir, err)
	}
	installed, onPath := t.TempDir(), t.TempDir()
	program := filepath.Join(installed, "postgres")
	err = errors.Join(os.WriteFile(program, nil, 0o700), os.Symlink(program, filepath.Join(onPath, "postgres")))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", onPath)
	if dir, err := postgresPrograms(); err != nil || dir != installed {
		t.Errorf("the programs are in %q, %v; want the ones that PATH leads to", dir, err)
	}
}

func mustQuery(t *testing.T, p *Postgres, want, sql string) {
	t.Helper()
	got, err := p.Do(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if got != want {
		t.Fatalf("%s: got %q, want %q", sql, got, want)
	}
}
