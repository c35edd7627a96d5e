package doctor

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/internal/settings"
)

// connect connects to the server of a URL as a program does.
func connect(ctx context.Context, t target) (conn *pgx.Conn, schema string, err error) {
	pool, schema, err := postgres.ParseURL(t.url)
	if err != nil {
		return nil, "", err
	}
	pool.ConnConfig.RuntimeParams["application_name"] = "lockctl doctor"
	pool.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err = pgx.ConnectConfig(ctx, pool.ConnConfig)
	return conn, cmp.Or(schema, postgres.DefaultSchema), err
}

// postgres examines the server of a URL that a program reaches.
func (r *report) postgres(ctx context.Context, t target) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	conn, schema, err := connect(ctx, t)
	if err != nil {
		r.add("connection", "", noConnection(err))
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	address := conn.PgConn().Conn().RemoteAddr().String()
	if !r.examined[address] {
		r.add("connection", address, ok("answers"))
		r.judgePostgres(ctx, address, conn)
	}
	r.examined[address] = true
	r.add("rights", address, grants(ctx, conn, schema))
}

// judgePostgres judges the settings as the session of a program has them.
func (r *report) judgePostgres(ctx context.Context, address string, conn *pgx.Conn) {
	facts := map[string]string{}
	var standbys int
	err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication").Scan(&standbys)
	if err == nil {
		var name, value string
		rows, _ := conn.Query(ctx, "SELECT name, setting FROM pg_settings") // ForEachRow returns the error
		_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { facts[name] = value; return nil })
	}
	if err != nil {
		r.add("settings", address, result(Note, err.Error(), "The settings are not known.",
			"Run lockctl doctor again."))
		return
	}
	if facts["transaction_read_only"] == "on" {
		r.add("role", address, result(Problem, "a standby, or default_transaction_read_only is on",
			"Every lock operation fails (SQLSTATE 25006).",
			"Name all hosts with target_session_attrs=read-write. On a primary: "+
				"ALTER ROLE CURRENT_USER SET default_transaction_read_only = off, or the same for the database."))
	} else {
		r.add("role", address, ok("takes writes"))
	}
	r.settings(address, settings.Postgres, facts, "ALTER SYSTEM SET %s = %s, and reload")
	if standbys > 0 && facts["synchronous_standby_names"] == "" {
		r.add("standbys", address, result(Note, fmt.Sprintf("%d standbys, none of them synchronous", standbys),
			"A promoted standby may lack the last grants and Saves. A lock may then have two holders for a TTL.",
			"Set synchronous_standby_names if a failover must not lose them."))
	}
}

// grants counts the functions that the role may not call. Ping reports a schema that is missing.
func grants(ctx context.Context, conn *pgx.Conn, schema string) Finding {
	var missing int
	err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = $1 AND p.proname ~ '_v[0-9]+$'
			AND NOT (has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'))`, schema).Scan(&missing)
	switch {
	case err != nil:
		return result(Note, err.Error(), "The rights are not known.", "Run lockctl doctor again.")
	case missing > 0:
		return result(Problem, fmt.Sprintf("the role may not call %d functions of the schema", missing),
			"Operations fail (SQLSTATE 42501).",
			fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s", schema, conn.Config().User))
	}
	return ok("USAGE and EXECUTE")
}
