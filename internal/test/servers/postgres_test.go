package servers

import (
	"errors"
	"os"
	"testing"
	"time"
)

func TestStartPostgres_otherServerOnPort_refused(t *testing.T) {
	t.Parallel()
	other := StartPostgres(t)
	p := newPostgres(t, nil)
	p.exec("initdb", "--pgdata="+p.data(), "--username=postgres", "--no-sync")
	p.port = other.port
	if err := p.start(); !errors.Is(err, errPortTaken) {
		t.Fatalf("start on a taken port: %v, want %v", err, errPortTaken)
	}
	mustQuery(t, other, "1", "SELECT 1")
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

// A crash keeps committed data, also while a client is connected. The settings stay.
func TestPostgres_restart_keepsTheData(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, "max_connections=20", "fsync=on")
	addr := p.Addr()
	mustQuery(t, p, "", "CREATE TABLE t (x int)")
	mustQuery(t, p, "UTF8", "SHOW server_encoding")
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
	mustQuery(t, p, "20", "SHOW max_connections")
	mustQuery(t, p, "on", "SHOW fsync")
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
