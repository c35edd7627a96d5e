package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/postgres"
)

// postgresServer is one connection to a PostgreSQL, and its answers.
type postgresServer struct {
	target
	name   string // host:port
	schema string
	conn   *pgx.Conn
	old    time.Duration // a transaction older than this is long

	standby  bool
	settings map[string]string // as the session of the program has them
}

// postgresChecks are the checks of a primary. The pooler comes last, because its check may end the
// connection.
var postgresChecks = []struct {
	name string
	run  func(context.Context, *postgresServer) (Finding, error)
}{
	{"version", postgresVersion},
	{"encoding", encoding},
	{"schema", schemaVersion},
	{"rights", privileges},
	{"durability", durability},
	{"standbys", standbys},
	{"isolation", isolation},
	{"timeouts", timeouts},
	{"connections", connections},
	{"transactions", transactions},
	{"row locks", rowLocks},
	{"clock", postgresClock},
	{"pooler", pooler},
}

// postgres examines each host of a URL.
func (r *report) postgres(ctx context.Context, t target) error {
	config, schema, err := postgres.ParseURL(t.url)
	if err != nil {
		return fmt.Errorf("%w: URL: %w", distlock.ErrInvalidOption, err)
	}
	if schema == "" {
		schema = postgres.DefaultSchema
	}
	chosen := config.ConnConfig.ValidateConnect != nil // target_session_attrs
	hosts := hostsOfConfig(config.ConnConfig)
	for _, host := range hosts {
		s := &postgresServer{target: t, name: fmt.Sprintf("%s:%d", host.Host, host.Port), schema: schema, old: time.Minute}
		s.examine(ctx, r, host, len(hosts) > 1 && chosen)
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
	all := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}},
		config.Fallbacks...)
	for _, attempt := range all {
		var host *pgx.ConnConfig
		for _, known := range hosts {
			if known.Host == attempt.Host && known.Port == attempt.Port {
				host = known
			}
		}
		if host != nil {
			host.Fallbacks = append(host.Fallbacks, attempt)
			continue
		}
		host = config.Copy()
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = attempt.Host, attempt.Port, attempt.TLSConfig, nil
		host.ValidateConnect = nil
		host.RuntimeParams["application_name"] = "lockctl doctor"
		host.DefaultQueryExecMode = pgx.QueryExecModeExec
		hosts = append(hosts, host)
	}
	return hosts
}

func (s *postgresServer) examine(ctx context.Context, r *report, config *pgx.ConnConfig, mayBeStandby bool) {
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
	if err := s.read(ctx); err != nil {
		r.add("connection", s.name, result(Problem, err.Error(), "The server serves no lock and no session.",
			"Look at the log of the server."))
		return
	}
	s.examined[s.name] = true
	secure := "without TLS"
	if _, is := s.conn.PgConn().Conn().(*tls.Conn); is {
		secure = "with TLS"
	}
	r.add("connection", s.name, ok("connected in %v, %s", took.Round(100*time.Microsecond), secure))
	r.add("role", s.name, s.role(mayBeStandby))
	for _, check := range postgresChecks {
		if s.standby || seen && check.name != "schema" && check.name != "rights" {
			continue
		}
		f, err := check.run(ctx, s)
		if err != nil {
			f = result(Note, err.Error(), "This is not known.", "Run lockctl doctor as a role that may read it.")
		}
		r.add(check.name, s.name, f)
	}
}

func refusedConnection(err error) Finding {
	do := "Start the server, or correct the host and the port of the URL. Check pg_hba.conf and the firewall."
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "28P01", "28000":
			do = "Correct the user and the password of the URL, or pg_hba.conf."
		case "3D000":
			do = "Correct the database of the URL, or create it."
		case "53300":
			do = "Raise max_connections, or find the connections in pg_stat_activity."
		case "57P03":
			do = "Wait until the server has started."
		}
	}
	return result(Problem, strings.Join(strings.Fields(err.Error()), " "), "The server serves no lock and no session.", do)
}

// read reads the settings.
func (s *postgresServer) read(ctx context.Context) error {
	s.settings = map[string]string{}
	rows, err := s.conn.Query(ctx, "SELECT name, setting FROM pg_settings WHERE NOT name LIKE '%.%'")
	if err != nil {
		return err
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { s.settings[name] = value; return nil }); err != nil {
		return err
	}
	return s.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&s.standby)
}

func (s *postgresServer) role(mayBeStandby bool) Finding {
	switch {
	case s.standby && mayBeStandby:
		return ok("standby")
	case s.standby:
		return result(Problem, "a standby", "Every lock operation fails (SQLSTATE 25006).",
			"Use the address of the primary, or name all hosts with target_session_attrs=read-write.")
	case s.settings["default_transaction_read_only"] == "on":
		return result(Problem, "default_transaction_read_only on", "Every lock operation fails (SQLSTATE 25006).",
			"ALTER ROLE CURRENT_USER SET default_transaction_read_only = off, or the same for the database")
	}
	return ok("primary")
}

func postgresVersion(_ context.Context, s *postgresServer) (Finding, error) {
	if v := s.settings["server_version"]; number(s.settings, "server_version_num") < 140000 {
		return result(Problem, "PostgreSQL "+v, "Migrate fails: the functions use the syntax of version 14.",
			"Upgrade to PostgreSQL 14 or newer."), nil
	}
	return ok("PostgreSQL %s", s.settings["server_version"]), nil
}

func encoding(_ context.Context, s *postgresServer) (Finding, error) {
	if e := s.settings["server_encoding"]; e != "UTF8" {
		return result(Problem, "the encoding of the database is "+e, "The library refuses the database.",
			"CREATE DATABASE chat ENCODING 'UTF8' TEMPLATE template0"), nil
	}
	return ok("UTF8"), nil
}

// part is the part of the schema that the target needs, and the call that installs it.
func (t target) part() (name, command string) {
	if t.store {
		return "store", "pgstore.Migrate"
	}
	return "lock", "pglock.Migrate"
}

func schemaVersion(ctx context.Context, s *postgresServer) (Finding, error) {
	part, command := s.part()
	var version int
	err := s.conn.QueryRow(ctx, "SELECT "+pgx.Identifier{s.schema}.Sanitize()+".version_v1($1)", part).Scan(&version)
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && server.Code == "42501": // a right is missing, see privileges
		return Finding{}, nil
	case errors.As(err, &server), err == nil && version == 0:
		return result(Problem, fmt.Sprintf("the part %q is missing in the schema %q", part, s.schema), "Every operation fails.",
			"Run "+command+" in this database, as a role that may create the schema."), nil
	case err != nil:
		return Finding{}, err
	}
	return ok("%s version %d in %q", part, version, s.schema), nil
}

func privileges(ctx context.Context, s *postgresServer) (Finding, error) {
	var there, usage, writes, super bool
	var missing int
	err := s.conn.QueryRow(ctx, `SELECT count(n.oid) > 0, coalesce(bool_or(has_schema_privilege(n.oid, 'USAGE')), false),
		(SELECT count(*) FROM pg_proc p WHERE p.pronamespace = min(n.oid::bigint) AND p.proname ~ '_v[0-9]+$'
			AND NOT has_function_privilege(p.oid, 'EXECUTE')),
		(SELECT count(*) > 0 FROM pg_class c WHERE c.relnamespace = min(n.oid::bigint) AND c.relkind = 'r'
			AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE')),
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
		FROM pg_namespace n WHERE n.nspname = $1`, s.schema).Scan(&there, &usage, &missing, &writes, &super)
	grants := fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s",
		s.schema, s.conn.Config().User)
	switch {
	case err != nil || !there:
		return Finding{}, err
	case !usage:
		return result(Problem, "no right USAGE on the schema", "Every operation fails (SQLSTATE 42501).", grants), nil
	case missing > 0:
		return result(Problem, fmt.Sprintf("no right EXECUTE on %d functions of the schema", missing),
			"Operations fail (SQLSTATE 42501).", grants), nil
	case super || writes:
		return result(Note, "the role may write the tables", "A program needs the functions alone. "+
			"A mistake of another statement may damage locks and sessions.", "Give programs a role with USAGE and EXECUTE alone."), nil
	}
	return ok("USAGE and EXECUTE, and no table"), nil
}

func durability(_ context.Context, s *postgresServer) (Finding, error) {
	off := func(name string) bool { return s.settings[name] == "off" }
	switch {
	case off("fsync"):
		return result(Problem, "fsync off", "A crash of the machine may lose grants, tokens and Saves, and may destroy the database.",
			"ALTER SYSTEM SET fsync = on, and reload"), nil
	case off("full_page_writes"):
		return result(Warning, "full_page_writes off", "A crash of the machine may destroy pages of the database.",
			"ALTER SYSTEM SET full_page_writes = on, and reload"), nil
	case off("autovacuum"):
		return result(Warning, "autovacuum off", "Old versions of rows stay, and each lock operation gets slower.",
			"ALTER SYSTEM SET autovacuum = on, and reload"), nil
	case off("synchronous_commit"):
		return result(Note, "synchronous_commit off", "Grants and Saves wait for the disk even so. "+
			"Your own fenced transactions do not: a crash may lose them.", "Set it to on for fenced transactions."), nil
	}
	return ok("fsync, full_page_writes and autovacuum on, synchronous_commit %s", s.settings["synchronous_commit"]), nil
}

func standbys(ctx context.Context, s *postgresServer) (Finding, error) {
	var all int
	err := s.conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication").Scan(&all)
	switch {
	case err != nil || all == 0:
		return Finding{}, err
	case s.settings["synchronous_standby_names"] == "":
		return result(Note, fmt.Sprintf("%d standbys, none of them synchronous", all),
			"A promoted standby may lack the last grants and Saves. A lock may then have two holders for a TTL.",
			"Set synchronous_standby_names if a failover must not lose them."), nil
	}
	return ok("%d standbys, synchronous_standby_names is set", all), nil
}

func isolation(_ context.Context, s *postgresServer) (Finding, error) {
	if i := s.settings["default_transaction_isolation"]; i != "read committed" {
		return result(Warning, "default_transaction_isolation "+i, "Each lock operation takes three round trips instead of one.",
			"ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'read committed'"), nil
	}
	return ok("read committed"), nil
}

// shortest is the least that a statement may take: it waits up to 2 s for the lock of a row.
const shortest = 3000 // ms

func timeouts(_ context.Context, s *postgresServer) (Finding, error) {
	for _, name := range []string{"statement_timeout", "transaction_timeout"} {
		if ms := number(s.settings, name); ms > 0 && ms < shortest {
			return result(Warning, fmt.Sprintf("%s %d ms", name, ms), "The server ends operations that wait for the lock of a row: up to 2 s.",
				fmt.Sprintf("ALTER ROLE CURRENT_USER SET %s = '%ds'", name, 2*shortest/1000)), nil
		}
	}
	if ms := number(s.settings, "idle_session_timeout"); ms > 0 && ms <= 10_000 {
		return result(Warning, fmt.Sprintf("idle_session_timeout %d ms", ms),
			"The server ends the connection that listens, which is silent for up to 10 s. Waiters then poll.",
			"ALTER ROLE CURRENT_USER SET idle_session_timeout = '1min'"), nil
	}
	if number(s.settings, "idle_in_transaction_session_timeout") == 0 {
		return result(Note, "idle_in_transaction_session_timeout 0",
			"A transaction without an end keeps old versions of rows, and makes busy locks slow until it ends.",
			"ALTER DATABASE … SET idle_in_transaction_session_timeout = '1min'"), nil
	}
	return ok("statement_timeout %s ms, idle_in_transaction_session_timeout %s ms", s.settings["statement_timeout"],
		s.settings["idle_in_transaction_session_timeout"]), nil
}

func connections(ctx context.Context, s *postgresServer) (Finding, error) {
	var used int64
	err := s.conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&used)
	limit := number(s.settings, "max_connections") - number(s.settings, "superuser_reserved_connections") -
		number(s.settings, "reserved_connections")
	if err == nil && used+8 > limit {
		return result(Warning, fmt.Sprintf("%d of %d connections", used, limit),
			"A Locker and its store need up to 8. Without a free one, operations fail (SQLSTATE 53300).",
			"Raise max_connections, make the pools smaller, or use a pooler."), nil
	}
	return ok("%d of %d connections", used, limit), err
}

func transactions(ctx context.Context, s *postgresServer) (Finding, error) {
	var pids string
	var oldest float64
	var hidden int
	err := s.conn.QueryRow(ctx, `SELECT coalesce(string_agg(who, ', '), ''), coalesce(max(age), 0)::float8,
		(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type IS NULL)
		FROM (
			SELECT 'pid ' || pid AS who, extract(epoch FROM clock_timestamp() - xact_start) AS age
			FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			UNION ALL SELECT 'PREPARED ' || quote_literal(gid), extract(epoch FROM clock_timestamp() - prepared)
			FROM pg_prepared_xacts WHERE database = current_database()
		) t WHERE age > $1`, s.old.Seconds()).Scan(&pids, &oldest, &hidden)
	switch {
	case err != nil:
		return Finding{}, err
	case oldest > 0:
		return result(Warning, fmt.Sprintf("open for up to %v: %s", time.Duration(oldest*float64(time.Second)).Round(time.Second), pids),
			"Old versions of rows stay until these transactions end. Operations of busy locks become slow: 4.9 ms, and 0.17 ms without such a transaction.",
			"Look at them in pg_stat_activity, then pg_terminate_backend(pid) or ROLLBACK PREPARED. Set idle_in_transaction_session_timeout."), nil
	case hidden > 0:
		return result(Note, fmt.Sprintf("%d connections of other roles are hidden", hidden), "Long transactions of these roles are not found.",
			"Run lockctl doctor as a member of pg_monitor."), nil
	}
	return ok("none is older than %v", s.old), nil
}

// rowLocks finds transactions of strangers. A call of the library ends within 2 s.
func rowLocks(ctx context.Context, s *postgresServer) (Finding, error) {
	var pids string
	err := s.conn.QueryRow(ctx, `SELECT coalesce(string_agg(DISTINCT format('pid %s (%s, %s)', a.pid, a.application_name, c.relname), ', '), '')
		FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') AND c.relkind = 'r'
			AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - $2 * interval '1 second'`,
		s.schema, min(2, s.old.Seconds())).Scan(&pids)
	if err == nil && pids != "" {
		return result(Warning, "a transaction holds rows of the library: "+pids,
			"Operations on these locks and sessions wait, and fail (SQLSTATE 55P03). Their leases may end.",
			"End the transaction: SELECT pg_terminate_backend(pid)."), nil
	}
	return ok("no transaction holds rows of the library for long"), err
}

func postgresClock(ctx context.Context, s *postgresServer) (Finding, error) {
	before := time.Now()
	var now time.Time
	err := s.conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	took := time.Since(before)
	if err != nil {
		return Finding{}, err
	}
	return clockFinding(now.Sub(before.Add(took/2)), took), nil
}

// pooler compares the process that the handshake names with the one that answers.
func pooler(ctx context.Context, s *postgresServer) (Finding, error) {
	var pid uint32
	if err := s.conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return Finding{}, err
	}
	if pid == s.conn.PgConn().PID() {
		return ok("none"), nil
	}
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return result(Problem, "a pooler in statement mode", "It refuses transactions, so Saves and fences fail.",
			"Set pool_mode = transaction, or use the address of the server."), nil
	}
	_ = tx.Rollback(ctx)
	return result(Warning, "a pooler between here and the server", "Notifications (LISTEN) do not come through. "+
		"Waiters poll every 5 to 10 ms, or less often.", "Give the Locker the address of the server itself: it needs 4 connections."), nil
}
