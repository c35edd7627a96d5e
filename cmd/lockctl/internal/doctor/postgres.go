package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/postgres"
)

const (
	grants = "GRANT USAGE ON SCHEMA ${schema} TO ${user}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ${schema} TO ${user}"
	rowEnd = "The server ends operations that wait for the lock of a row: up to 2 s."
)

var postgresRules = []rule{
	{"role", OK, both(is("standby", "true"), is("hosts", "chosen")), "standby", "", ""},
	{"role", Problem, is("standby", "true"), "a standby", "Every lock operation fails (SQLSTATE 25006).",
		"Use the address of the primary, or name all hosts with target_session_attrs=read-write."},
	{"role", Problem, is("default_transaction_read_only", "on"), "default_transaction_read_only on",
		"Every lock operation fails (SQLSTATE 25006).",
		"ALTER ROLE CURRENT_USER SET default_transaction_read_only = off, or the same for the database"},
	{"role", OK, always, "primary", "", ""},

	{"version", Problem, below("server_version_num", 140000), "PostgreSQL ${server_version}",
		"Migrate fails: the functions use the syntax of version 14.", "Upgrade to PostgreSQL 14 or newer."},
	{"version", OK, always, "PostgreSQL ${server_version}", "", ""},

	{"encoding", OK, is("server_encoding", "UTF8"), "UTF8", "", ""},
	{"encoding", Problem, always, "the encoding of the database is ${server_encoding}", "The library refuses the database.",
		"CREATE DATABASE chat ENCODING 'UTF8' TEMPLATE template0"},

	{"schema", Problem, is("part_version", "0"), `the part "${part}" is missing in the schema "${schema}"`, "Every operation fails.",
		"Run ${migrate} in this database, as a role that may create the schema."},
	{"schema", OK, known("part_version"), `${part} version ${part_version} in "${schema}"`, "", ""},

	{"rights", Problem, is("usage", "false"), "no right USAGE on the schema", "Every operation fails (SQLSTATE 42501).", grants},
	{"rights", Problem, above("missing", 0), "no right EXECUTE on ${missing} functions of the schema",
		"Operations fail (SQLSTATE 42501).", grants},
	{"rights", Note, is("writes", "true"), "the role may write the tables",
		"A program needs the functions alone. A mistake of another statement may damage locks and sessions.",
		"Give programs a role with USAGE and EXECUTE alone."},
	{"rights", OK, known("usage"), "USAGE and EXECUTE, and no table", "", ""},

	{"durability", Problem, is("fsync", "off"), "fsync off",
		"A crash of the machine may lose grants, tokens and Saves, and may destroy the database.", "ALTER SYSTEM SET fsync = on, and reload"},
	{"durability", Warning, is("full_page_writes", "off"), "full_page_writes off",
		"A crash of the machine may destroy pages of the database.", "ALTER SYSTEM SET full_page_writes = on, and reload"},
	{"durability", Warning, is("autovacuum", "off"), "autovacuum off",
		"Old versions of rows stay, and each lock operation gets slower.", "ALTER SYSTEM SET autovacuum = on, and reload"},
	{"durability", Note, is("synchronous_commit", "off"), "synchronous_commit off",
		"Grants and Saves wait for the disk even so. Your own fenced transactions do not: a crash may lose them.",
		"Set it to on for fenced transactions."},
	{"durability", OK, always, "fsync, full_page_writes and autovacuum on, synchronous_commit ${synchronous_commit}", "", ""},

	{"standbys", Note, both(above("standbys", 0), is("synchronous_standby_names", "")), "${standbys} standbys, none of them synchronous",
		"A promoted standby may lack the last grants and Saves. A lock may then have two holders for a TTL.",
		"Set synchronous_standby_names if a failover must not lose them."},
	{"standbys", OK, above("standbys", 0), "${standbys} standbys, synchronous_standby_names is set", "", ""},

	{"isolation", OK, is("default_transaction_isolation", "read committed"), "read committed", "", ""},
	{"isolation", Warning, always, "default_transaction_isolation ${default_transaction_isolation}",
		"Each lock operation takes three round trips instead of one.",
		"ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'read committed'"},

	{"timeouts", Warning, below("statement_timeout", shortest), "statement_timeout ${statement_timeout} ms", rowEnd,
		"ALTER ROLE CURRENT_USER SET statement_timeout = '6s'"},
	{"timeouts", Warning, below("transaction_timeout", shortest), "transaction_timeout ${transaction_timeout} ms", rowEnd,
		"ALTER ROLE CURRENT_USER SET transaction_timeout = '6s'"},
	{"timeouts", Warning, below("idle_session_timeout", silent), "idle_session_timeout ${idle_session_timeout} ms",
		"The server ends the connection that listens, which is silent for up to 10 s. Waiters then poll.",
		"ALTER ROLE CURRENT_USER SET idle_session_timeout = '1min'"},
	{"timeouts", Note, zero("idle_in_transaction_session_timeout"), "idle_in_transaction_session_timeout 0",
		"A transaction without an end keeps old versions of rows, and makes busy locks slow until it ends.",
		"ALTER DATABASE ${database} SET idle_in_transaction_session_timeout = '1min'"},
	{"timeouts", OK, always, "statement_timeout ${statement_timeout} ms, " +
		"idle_in_transaction_session_timeout ${idle_in_transaction_session_timeout} ms", "", ""},

	{"connections", Warning, is("enough", "false"), "${connections} of ${usable} connections",
		"A Locker and its store need up to 8. Without a free one, operations fail (SQLSTATE 53300).",
		"Raise max_connections, make the pools smaller, or use a pooler."},
	{"connections", OK, known("usable"), "${connections} of ${usable} connections", "", ""},

	{"transactions", Warning, known("long_ones"), "open for up to ${oldest}: ${long_ones}",
		"Old versions of rows stay until these transactions end. " +
			"Operations of busy locks become slow: 4.9 ms, and 0.17 ms without such a transaction.",
		"Look at them in pg_stat_activity, then pg_terminate_backend(pid) or ROLLBACK PREPARED. Set idle_in_transaction_session_timeout."},
	{"transactions", Note, above("hidden", 0), "${hidden} connections of other roles are hidden",
		"Long transactions of these roles are not found.", "Run lockctl doctor as a member of pg_monitor."},
	{"transactions", OK, known("hidden"), "none is older than ${long}", "", ""},

	{"row locks", Warning, known("strangers"), "a transaction holds rows of the library: ${strangers}",
		"Operations on these locks and sessions wait, and fail (SQLSTATE 55P03). Their leases may end.",
		"End the transaction: SELECT pg_terminate_backend(pid)."},
	{"row locks", OK, known("row_locks"), "no transaction holds rows of the library for long", "", ""},

	{"pooler", Problem, is("pooler", "statement"), "a pooler in statement mode", "It refuses transactions, so Saves and fences fail.",
		"Set pool_mode = transaction, or use the address of the server."},
	{"pooler", Warning, is("pooler", "other"), "a pooler between here and the server",
		"Notifications (LISTEN) do not come through. Waiters poll every 5 to 10 ms, or less often.",
		"Give the Locker the address of the server itself: it needs 4 connections."},
	{"pooler", OK, is("pooler", "none"), "none", "", ""},
}

const (
	shortest = 3_000  // ms: a statement waits up to 2 s for the lock of a row
	silent   = 10_001 // ms: a connection that listens is silent for up to 10 s
)

// below holds for a number from 1 to less than a limit. 0 switches a timeout off.
func below(name string, limit int64) func(*server) bool {
	return func(s *server) bool { return s.number(name) > 0 && s.number(name) < limit }
}

func above(name string, limit int64) func(*server) bool {
	return func(s *server) bool { return s.number(name) > limit }
}

// A question is a query of one row, or none. Its columns become facts.
type question struct{ check, sql string }

func (s *postgresServer) questions() []question {
	return []question{
		{"schema", `SELECT ` + pgx.Identifier{s.facts["schema"]}.Sanitize() + `.version_v1(@part) AS part_version`},
		{"rights", `SELECT coalesce(bool_or(has_schema_privilege(n.oid, 'USAGE')), false) AS usage,
			(SELECT count(*) FROM pg_proc p WHERE p.pronamespace = min(n.oid::bigint) AND p.proname ~ '_v[0-9]+$'
				AND NOT has_function_privilege(p.oid, 'EXECUTE')) AS missing,
			(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
				OR (SELECT count(*) > 0 FROM pg_class c WHERE c.relnamespace = min(n.oid::bigint) AND c.relkind = 'r'
					AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE')) AS writes
			FROM pg_namespace n WHERE n.nspname = @schema HAVING count(n.oid) > 0`},
		{"standbys", `SELECT count(*) AS standbys FROM pg_stat_replication`},
		{"connections", `SELECT connections, usable, connections + 8 <= usable AS enough FROM (
			SELECT count(*) AS connections, current_setting('max_connections')::int
				- current_setting('superuser_reserved_connections')::int
				- coalesce(current_setting('reserved_connections', true)::int, 0) AS usable
			FROM pg_stat_activity WHERE backend_type = 'client backend') t`},
		{"transactions", `SELECT coalesce(string_agg(who, ', '), '') AS long_ones, date_trunc('second', max(age))::text AS oldest,
			(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type IS NULL) AS hidden
			FROM (
				SELECT 'pid ' || pid AS who, clock_timestamp() - xact_start AS age
				FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
				UNION ALL SELECT 'PREPARED ' || quote_literal(gid), clock_timestamp() - prepared
				FROM pg_prepared_xacts WHERE database = current_database()
			) t WHERE age > @long * interval '1 second'`},
		// Transactions of strangers: a call of the library ends within 2 s.
		{"row locks", `SELECT coalesce(string_agg(DISTINCT format('pid %s (%s, %s)', a.pid, a.application_name, c.relname), ', '), '')
				AS strangers, 'known' AS row_locks
			FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') AND c.relkind = 'r'
				AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = @schema)
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - least(2, @long) * interval '1 second'`},
	}
}

// postgresServer is a server that is a PostgreSQL.
type postgresServer struct {
	server
	conn *pgx.Conn
	long time.Duration // a transaction older than this is long
}

// postgres examines each host of a URL.
func (r *report) postgres(ctx context.Context, t target) error {
	config, schema, err := postgres.ParseURL(t.url)
	if err != nil {
		return fmt.Errorf("%w: URL: %w", distlock.ErrInvalidOption, err)
	}
	facts := map[string]string{"schema": cmp.Or(schema, postgres.DefaultSchema), "part": "lock", "migrate": "pglock.Migrate"}
	if t.store {
		facts["part"], facts["migrate"] = "store", "pgstore.Migrate"
	}
	chosen := config.ConnConfig.ValidateConnect != nil // target_session_attrs
	hosts := hostsOfConfig(config.ConnConfig)
	if len(hosts) > 1 && chosen {
		facts["hosts"] = "chosen"
	}
	for _, host := range hosts {
		s := &postgresServer{long: time.Minute}
		s.target, s.name, s.facts = t, fmt.Sprintf("%s:%d", host.Host, host.Port), maps.Clone(facts)
		s.examine(ctx, r, host)
	}
	if len(hosts) > 1 && !chosen {
		r.add("hosts", "", result(Warning, fmt.Sprintf("%d hosts without target_session_attrs", len(hosts)),
			"After a failover a program may connect to the standby, where each operation fails.",
			"Add target_session_attrs=read-write to the URL."))
	}
	return nil
}

// hostsOfConfig returns a configuration for each host, with its attempts with and without TLS.
func hostsOfConfig(config *pgx.ConnConfig) (hosts []*pgx.ConnConfig) {
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	for _, attempt := range append([]*pgconn.FallbackConfig{first}, config.Fallbacks...) {
		known := slices.IndexFunc(hosts, func(h *pgx.ConnConfig) bool { return h.Host == attempt.Host && h.Port == attempt.Port })
		if known >= 0 {
			hosts[known].Fallbacks = append(hosts[known].Fallbacks, attempt)
			continue
		}
		host := config.Copy()
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = attempt.Host, attempt.Port, attempt.TLSConfig, nil
		host.ValidateConnect = nil
		host.RuntimeParams["application_name"] = "lockctl doctor"
		host.DefaultQueryExecMode = pgx.QueryExecModeExec
		hosts = append(hosts, host)
	}
	return hosts
}

func (s *postgresServer) examine(ctx context.Context, r *report, config *pgx.ConnConfig) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	seen := s.examined[s.name]
	before := time.Now()
	var err error
	if s.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		r.add("connection", s.name, refusedConnection(err))
		return
	}
	defer func() { _ = s.conn.Close(context.WithoutCancel(ctx)) }()
	took := time.Since(before)
	offset, questioned, err := s.readSettings(ctx)
	if err != nil {
		r.add("connection", s.name, result(Problem, err.Error(), servesNothing, "Look at the log of the server."))
		return
	}
	s.examined[s.name] = true
	_, encrypted := s.conn.PgConn().Conn().(*tls.Conn)
	r.add("connection", s.name, ok("connected in %v, %s", took.Round(100*time.Microsecond), secured(encrypted)))
	standby := s.facts["standby"] == "true"
	wanted := func(check string) bool {
		return check == "role" || !standby && (!seen || check == "schema" || check == "rights")
	}
	for _, q := range s.questions() {
		if !wanted(q.check) {
			continue
		}
		if err := s.ask(ctx, q); err != nil {
			r.add(q.check, s.name, result(Note, err.Error(), "This is not known.", "Run lockctl doctor as a role that may read it."))
		}
	}
	if !standby && !seen {
		r.add("clock", s.name, clock(offset, questioned))
		s.findPooler(ctx) // the last one: it may end the connection
	}
	r.judge(&s.server, postgresRules, wanted)
}

// refusals are for the SQLSTATE of a refused connection.
var refusals = map[string]string{
	"28P01": "Correct the user and the password of the URL, or pg_hba.conf.",
	"28000": "Correct the user and the password of the URL, or pg_hba.conf.",
	"3D000": "Correct the database of the URL, or create it.",
	"53300": "Raise max_connections, or find the connections in pg_stat_activity.",
	"57P03": "Wait until the server has started.",
}

func refusedConnection(err error) Finding {
	do := "Start the server, or correct the host and the port of the URL. Check pg_hba.conf and the firewall."
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		do = cmp.Or(refusals[refused.Code], do)
	}
	return result(Problem, strings.Join(strings.Fields(err.Error()), " "), servesNothing, do)
}

// readSettings reads the settings as the session of the program has them, and compares the clocks.
func (s *postgresServer) readSettings(ctx context.Context) (offset, took time.Duration, err error) {
	rows, err := s.conn.Query(ctx, "SELECT name, setting FROM pg_settings WHERE NOT name LIKE '%.%'")
	if err != nil {
		return 0, 0, err
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { s.facts[name] = value; return nil }); err != nil {
		return 0, 0, err
	}
	config := s.conn.Config()
	s.facts["user"], s.facts["database"], s.facts["long"] = config.User, config.Database, s.long.String()
	var standby bool
	var now time.Time
	before := time.Now()
	err = s.conn.QueryRow(ctx, "SELECT pg_is_in_recovery(), clock_timestamp()").Scan(&standby, &now)
	took = time.Since(before)
	s.facts["standby"] = fmt.Sprint(standby)
	return now.Sub(before.Add(took / 2)), took, err
}

// ask keeps the answer of a question as facts.
func (s *postgresServer) ask(ctx context.Context, q question) error {
	rows, err := s.conn.Query(ctx, q.sql, pgx.NamedArgs{"schema": s.facts["schema"], "part": s.facts["part"], "long": s.long.Seconds()})
	if err != nil {
		return err
	}
	row, err := pgx.CollectOneRow(rows, pgx.RowToMap)
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case q.check == "schema" && errors.As(err, &refused):
		if refused.Code != "42501" { // a right is missing, see the check of the rights
			s.facts["part_version"] = "0"
		}
		return nil
	}
	for name, value := range row {
		s.facts[name] = fmt.Sprint(value)
	}
	return err
}

// findPooler compares the process that the handshake names with the one that answers.
func (s *postgresServer) findPooler(ctx context.Context) {
	var pid uint32
	if err := s.conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return
	}
	s.facts["pooler"] = "none"
	if pid == s.conn.PgConn().PID() {
		return
	}
	s.facts["pooler"] = "other"
	if tx, err := s.conn.Begin(ctx); err != nil {
		s.facts["pooler"] = "statement"
	} else {
		_ = tx.Rollback(ctx)
	}
}
