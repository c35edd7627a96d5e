package servers

import (
	"fmt"
	"slices"
	"testing"
)

// PostgresPair is a PostgreSQL and its hot standby, which streams the write-ahead log.
type PostgresPair struct {
	Primary, Standby *Postgres
}

// StartPostgresPair starts a PostgreSQL and a standby, and returns once the standby streams. If the
// pair is synchronous, a commit on the primary waits until the standby has it, unless its session
// sets synchronous_commit. The settings are those of both.
func StartPostgresPair(tb testing.TB, synchronous bool, settings ...string) *PostgresPair {
	tb.Helper()
	p := &PostgresPair{Primary: StartPostgres(tb, settings...)}
	// By default, a promotion can wait 5 s for a primary that has died: as long as a first answer
	// may take.
	p.Standby = newPostgres(tb, append(slices.Clone(settings), "wal_retrieve_retry_interval=100ms"))
	source := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=standby", p.Primary.port)
	p.Standby.exec("pg_basebackup", "--pgdata="+p.Standby.data(), "--dbname="+source, "--write-recovery-conf",
		"--checkpoint=fast", "--wal-method=stream", "--no-sync")
	p.Standby.mustLaunch()
	p.AwaitStandby()
	if synchronous {
		p.Primary.mustDo("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
		p.Primary.reload()
		p.Primary.await("sync", "SELECT sync_state FROM pg_stat_replication")
	}
	return p
}

// AwaitStandby waits until the standby has, and shows to queries, all that the primary had at the
// time of the call.
func (p *PostgresPair) AwaitStandby() {
	p.Primary.tb.Helper()
	// A durable commit takes along those before it that wait for no disk.
	p.Primary.mustDo("SELECT pg_logical_emit_message(true, 'servers', '')")
	at := p.Primary.mustDo("SELECT pg_current_wal_lsn()")
	p.Standby.await("t", fmt.Sprintf("SELECT pg_last_wal_replay_lsn() >= '%s'", at))
}

// Detach cuts the standby off: commits on the primary no longer reach it. In a synchronous pair
// they wait.
func (p *PostgresPair) Detach() {
	p.Standby.tb.Helper()
	p.Standby.mustDo("ALTER SYSTEM SET primary_conninfo = ''")
	p.Standby.reload()
	p.Primary.await("0", "SELECT count(*) FROM pg_stat_replication")
}

// Promote makes the standby a primary and returns once it takes writes. The old primary, if it
// runs, takes writes, too. The new primary waits for no standby.
func (p *PostgresPair) Promote() {
	p.Standby.tb.Helper()
	p.Standby.mustDo("SELECT pg_promote(wait => false)")
	p.Standby.await("f", "SELECT pg_is_in_recovery()")
}

func (p *Postgres) reload() {
	p.tb.Helper()
	p.mustDo("SELECT pg_reload_conf()")
}

func (p *Postgres) mustDo(sql string) string {
	p.tb.Helper()
	got, err := p.Do(sql)
	if err != nil {
		p.tb.Fatalf("%s: %v", sql, err)
	}
	return got
}

// await sends SQL until the answer is the one that is wanted.
func (p *Postgres) await(want, sql string) {
	p.tb.Helper()
	var got string
	var err error
	if !Within(settleTimeout, func() bool { got, err = p.Do(sql); return err == nil && got == want }) {
		p.tb.Fatalf("%s: %q, %v; want %q within %v", sql, got, err, want, settleTimeout)
	}
}
