package doctor

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func sql(t *testing.T, db *servers.PostgresDatabase, text string) {
	t.Helper()
	if text == "" {
		return
	}
	if _, err := db.Do(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestExamine_plantedInPostgres(t *testing.T) {
	t.Parallel()
	server := servers.SharedPostgres(t)
	for name, c := range map[string]struct{ plant, parameters, check, text string }{
		"no schema":      {"DROP SCHEMA belugalock CASCADE", "", "locks", "pglock.Migrate"},
		"another schema": {"", "&schema=other", "locks", `"other"`},
		"read only":      {"ALTER DATABASE %s SET default_transaction_read_only = on", "", "role", "default_transaction_read_only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated.Database(t, server)
			sql(t, db, strings.ReplaceAll(c.plant, "%s", db.Name()))
			findings := examine(t, db.URL()+c.parameters, "")
			shows(t, findings, Problem, c.check, c.text)
			shows(t, findings, Problem, "settings", "fsync off") // as each server for tests has it
		})
	}
}

func TestExamine_postgresRights(t *testing.T) {
	t.Parallel()
	db := migrated.Database(t, servers.SharedPostgres(t))
	role := "role_" + db.Name()
	sql(t, db, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { sql(t, db, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	address := strings.Replace(db.URL(), "postgres@", role+":secret@", 1)
	rights := func(level Level, text string) { t.Helper(); shows(t, examine(t, address, ""), level, "rights", text) }
	rights(Problem, "GRANT USAGE ON SCHEMA belugalock TO "+role)
	sql(t, db, "GRANT USAGE ON SCHEMA belugalock TO "+role)
	rights(Problem, "may not call")
	sql(t, db, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO "+role)
	rights(OK, "USAGE and EXECUTE")
	shows(t, examine(t, address, ""), OK, "locks", "the service answers")
	shows(t, examine(t, strings.Replace(address, "secret", "wrong", 1), ""), Problem, "connection", "password authentication failed")
}

func TestExamine_healthyStandby(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgresPair(t, true, "fsync=on") // which those of a server for tests lack
	db := migrated.Database(t, p.Primary)
	converse(t, db.URL(), db.URL())
	p.AwaitStandby()
	both := strings.Replace(db.URL(), p.Primary.Addr(), p.Standby.Addr()+","+p.Primary.Addr(), 1)
	shows(t, finds(t, both+"&target_session_attrs=read-write", db.URL()), OK, "namespace", "the locks of 1 sessions")
	finds(t, db.URL()+"&namespace=other", db.URL(), "problem namespace")

	standby := p.Standby.Database(db.Name()).URL()
	shows(t, examine(t, standby, ""), Problem, "role", "a standby")
}
