package doctor

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/migrated"
	"github.com/belugalock/belugalock/internal/testservers"
)

// sound are the settings of a healthy server, which those of a server for tests are not.
var sound = []string{"fsync=on", "idle_in_transaction_session_timeout=1min"}

func sql(t *testing.T, db *testservers.PostgresDatabase, text string) {
	t.Helper()
	if _, err := db.Do(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestExamine_plantedInPostgres(t *testing.T) {
	t.Parallel()
	server := testservers.SharedPostgres(t)
	for _, c := range []struct{ name, plant, parameters, want, text string }{
		{"no schema", "DROP SCHEMA belugalock CASCADE", "", "problem schema", "pglock.Migrate"},
		{"another schema", "", "&schema=other", "problem schema", `"other"`},
		{"isolation", "ALTER DATABASE %s SET default_transaction_isolation = 'serializable'", "",
			"warning isolation", "default_transaction_isolation serializable"},
		{"statement timeout", "ALTER DATABASE %s SET statement_timeout = '500ms'", "", "warning timeouts", "statement_timeout 500 ms"},
		{"read only", "ALTER DATABASE %s SET default_transaction_read_only = on", "", "problem role", "default_transaction_read_only on"},
		{"hosts", "", "second host", "warning hosts", "target_session_attrs=read-write"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := migrated.Database(t, server)
			if c.plant != "" {
				sql(t, db, strings.ReplaceAll(c.plant, "%s", db.Name()))
			}
			address := db.URL() + c.parameters
			if c.parameters == "second host" {
				address = strings.Replace(db.URL(), server.Addr(), server.Addr()+","+freeAddr(t), 1)
			}
			findings := examine(t, address)
			level, check, _ := strings.Cut(c.want, " ")
			shows(t, findings, Level(level), check, c.text)
			shows(t, findings, Problem, "durability", "fsync") // as each server for tests has it
		})
	}
}

func TestExamine_plantedEncoding(t *testing.T) {
	t.Parallel()
	server := testservers.SharedPostgres(t)
	db := server.NewDatabase(t)
	ascii := db.Name() + "ascii"
	sql(t, db, "CREATE DATABASE "+ascii+" ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	t.Cleanup(func() { sql(t, db, "DROP DATABASE "+ascii+" WITH (FORCE)") })
	shows(t, examine(t, server.URL(ascii)), Problem, "encoding", "SQL_ASCII")
}

func TestExamine_postgresRights(t *testing.T) {
	t.Parallel()
	db := migrated.Database(t, testservers.SharedPostgres(t))
	role := "role_" + db.Name()
	sql(t, db, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { sql(t, db, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	address := strings.Replace(db.URL(), "postgres@", role+":secret@", 1)
	rights := func(level Level, text string) { t.Helper(); shows(t, examine(t, address), level, "rights", text) }
	rights(Problem, "GRANT USAGE ON SCHEMA belugalock TO "+role)
	sql(t, db, "GRANT USAGE ON SCHEMA belugalock TO "+role)
	rights(Problem, "no right EXECUTE on")
	sql(t, db, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO "+role)
	rights(OK, "")
	findings := examine(t, address)
	shows(t, findings, OK, "schema", "lock version 1")
	shows(t, findings, OK, "locks", "the lock service answers")
	sql(t, db, "GRANT UPDATE ON belugalock.lease TO "+role)
	rights(Note, "the role may write the tables")
	shows(t, examine(t, strings.Replace(address, "secret", "wrong", 1)), Problem, "connection", "Correct the user and the password")
}

// A stranger keeps the row of a lock.
func TestTransactions_rowsOfAStranger(t *testing.T) {
	t.Parallel()
	db := migrated.Database(t, testservers.SharedPostgres(t))
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), db.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	stranger := connect()
	s := &postgresServer{conn: connect()} // long is 0: each transaction is long
	s.facts = map[string]string{"schema": "belugalock"}
	finds := func(check string, want Level) {
		t.Helper()
		for _, q := range s.questions() {
			if q.check == check {
				if err := s.ask(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
		}
		if f := judged(&s.server, postgresRules, check); f.Level != want {
			t.Errorf("%+v; want %s", f, want)
		}
	}
	finds("row locks", OK)
	finds("transactions", OK)
	tx, err := stranger.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	finds("transactions", Warning)
	finds("row locks", OK)
	if _, err := tx.Exec(t.Context(), "SELECT FROM belugalock.lease FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	finds("row locks", Warning)
}

func TestExamine_healthyStandby(t *testing.T) {
	t.Parallel()
	p := testservers.StartPostgresPair(t, true, sound...)
	db := migrated.Database(t, p.Primary)
	converse(t, db.URL(), db.URL())
	p.AwaitStandby()
	both := strings.Replace(db.URL(), p.Primary.Addr(), p.Standby.Addr()+","+p.Primary.Addr(), 1)
	shows(t, finds(t, both+"&target_session_attrs=read-write", db.URL()), OK, "namespace", "the locks of 1 sessions")
	finds(t, db.URL()+"&namespace=other", db.URL(), "problem namespace")

	standby := p.Standby.Database(db.Name()).URL()
	shows(t, examine(t, standby), Problem, "role", "a standby")
}

func TestExamine_PgBouncer(t *testing.T) {
	t.Parallel()
	server := testservers.StartPostgres(t, sound...)
	db := migrated.Database(t, server)
	finds(t, db.URL(), db.URL())
	for mode, want := range map[string]Level{"session": Warning, "transaction": Warning, "statement": Problem} {
		bouncer := testservers.StartPgBouncer(t, server, mode)
		findings := examine(t, bouncer.URL(db.Name()))
		shows(t, findings, want, "pooler", "a pooler")
	}
}
