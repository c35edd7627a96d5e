package servers

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

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
