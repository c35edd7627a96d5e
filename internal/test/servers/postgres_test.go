package servers

import (
	"os"
	"testing"
)

func TestStartPostgres_cleanup_leavesNothing(t *testing.T) {
	for state, change := range map[string]func(*Postgres){
		"killed": func(p *Postgres) { p.Kill() },
		"paused": func(p *Postgres) { p.Pause() },
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
