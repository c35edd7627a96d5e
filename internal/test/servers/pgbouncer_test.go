package servers

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// In session mode a client keeps its server process. In transaction mode, PgBouncer gives the next
// transaction to any process.
func TestPgBouncer_mode_decidesWhoKeepsAProcess(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	for mode, kept := range map[string]bool{"session": true, "transaction": false} {
		t.Run(mode, func(t *testing.T) {
			b := StartPgBouncer(t, p, mode, "server_round_robin = 1")
			db := p.NewDatabase(t)
			one, other := connect(t, b.URL(db.Name())), connect(t, b.URL(db.Name()))
			before := ask(t, one, "BEGIN; SELECT pg_backend_pid()") // so that the other has a process of its own
			if ask(t, other, "SELECT pg_backend_pid()") == before {
				t.Error("two clients have one process at the same time")
			}
			ask(t, one, "COMMIT")
			same := true
			for range 4 {
				same = ask(t, one, "SELECT pg_backend_pid()") == before && same
			}
			if same != kept {
				t.Errorf("the client keeps its process: %v, want %v", same, kept)
			}
		})
	}
}

func TestPgBouncer_restart_reachesTheServer(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	b := StartPgBouncer(t, p, "transaction")
	for _, restart := range []func(){b.Restart, func() { b.Kill(); b.Restart() }, func() { b.Stop(); b.Restart() }, func() { b.Pause(); b.Restart() }} {
		conn := connect(t, b.URL("postgres"))
		restart()
		if err := conn.Exec(t.Context(), "SELECT 1").Close(); err == nil {
			t.Error("a connection has outlived the PgBouncer")
		}
		if got, err := query(b.URL("postgres"), "SELECT 1"); err != nil || got != "1" {
			t.Errorf("after a restart: %q, %v", got, err)
		}
	}
}

func connect(t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// ask returns the one value that the last of these statements returns, if any.
func ask(t *testing.T, conn *pgconn.PgConn, sql string) string {
	t.Helper()
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		return ""
	}
	return string(last.Rows[0][0])
}
