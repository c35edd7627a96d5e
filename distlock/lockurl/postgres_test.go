package lockurl_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const password = "p@ss/wo+rd"

// database is a new database whose user "agent", with a password, may lock in a schema.
func database(t *testing.T, schema string) *servers.PostgresDatabase {
	t.Helper()
	db := servers.SharedPostgres(t).NewDatabase(t)
	migrate(t, db, schema)
	user := "agent_" + db.Name()
	_, err := db.Do("CREATE ROLE " + user + " LOGIN PASSWORD '" + password + "';" +
		"GRANT USAGE ON SCHEMA " + schema + " TO " + user + ";" +
		"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA " + schema + " TO " + user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = db.Do("DROP OWNED BY " + user + "; DROP ROLE " + user) })
	return db
}

func migrate(t *testing.T, db *servers.PostgresDatabase, schema string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pglock.Migrate(t.Context(), pool, &pglock.Options{Schema: schema}); err != nil {
		t.Fatal(err)
	}
}

// urlOf is the URL of the database for the user of database, without parameters.
func urlOf(scheme string, db *servers.PostgresDatabase) string {
	u, _ := url.Parse(db.URL())
	return scheme + "://agent_" + db.Name() + ":" + url.QueryEscape(password) + "@" + u.Host + "/" + db.Name()
}

func TestOpen_postgres(t *testing.T) {
	t.Parallel()
	db := database(t, "locks")
	for _, scheme := range []string{"postgres", "postgresql"} {
		rawURL := urlOf(scheme, db) + "?ttl=5s&schema=locks&application_name=a+b%20c&namespace=chat"
		a, b := open(t, rawURL), open(t, rawURL)
		checkHandoff(t, a, b)
		if fencing.Backend(a) != "postgres" || fencing.Options(a).Namespace != "chat" {
			t.Errorf("backend %q, options %+v", fencing.Backend(a), fencing.Options(a))
		}
		// ⚑ PostgreSQL reads a plus sign as a plus sign.
		n, err := db.Do("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'a+b c'")
		if err != nil || n != "t" {
			t.Errorf("a connection with the name of the URL: %s, %v", n, err)
		}
	}
}

func TestOpen_postgres_withoutSchemaRefused(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	for _, rawURL := range []string{db.URL(), db.URL() + "&schema=other"} {
		l := open(t, rawURL)
		_, err := l.TryAcquire(t.Context(), "key")
		if !errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), "run pglock.Migrate") {
			t.Errorf("TryAcquire: %v", err)
		}
	}
}

func TestOpen_postgres_wrongPasswordRefused(t *testing.T) {
	t.Parallel()
	db := database(t, "belugalock")
	l := open(t, strings.Replace(urlOf("postgres", db), url.QueryEscape(password), "wr0ng", 1))
	_, err := l.TryAcquire(t.Context(), "key")
	if !errors.Is(err, distlock.ErrRefused) || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("TryAcquire: %v", err)
	}
}

func TestOpen_postgres_tlsVerifiesServer(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	db := server.NewDatabase(t)
	migrate(t, db, "belugalock")
	ca := newAuthority(t)
	certificate, key := ca.issue(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	for file, name := range map[string]string{certificate: "server.crt", key: "server.key"} {
		text, err := os.ReadFile(file)
		if err == nil { // into the directory of the server, for its user alone
			_, err = server.Do("COPY (SELECT unnest(string_to_array(trim('" + string(text) + "'), E'\n'))) " +
				"TO PROGRAM 'umask 077; cat > " + name + "'")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{"ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"} {
		if _, err := server.Do(sql); err != nil {
			t.Fatal(err)
		}
	}
	rawURL := strings.Replace(db.URL(), "sslmode=disable", "sslmode=verify-full", 1)
	trusted := rawURL + "&sslrootcert=" + ca.file
	servers.Await(t, 10*time.Second, "the server speaks TLS", func() bool {
		_, err := open(t, trusted).TryAcquire(t.Context(), "first")
		return err == nil
	})
	checkHandoff(t, open(t, trusted), open(t, trusted))
	if n, err := db.Do("SELECT count(*) FROM pg_stat_ssl WHERE ssl"); err != nil || n == "0" {
		t.Errorf("%s connections over TLS, %v", n, err)
	}
	for untrusted, text := range map[string]string{
		rawURL + "&sslrootcert=" + newAuthority(t).file: "x509: certificate signed by unknown authority",
		strings.Replace(trusted, "127.0.0.1", "localhost", 1): "x509: certificate is not valid for any names, " +
			"but wanted to match localhost",
	} {
		_, err := open(t, untrusted).TryAcquire(t.Context(), "key")
		if !errors.Is(err, distlock.ErrUnavailable) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q", err, text)
		}
	}
}

func TestOpen_postgres_unverifiedTLS_warnsOnce(t *testing.T) {
	t.Parallel()
	const rawURL = "postgres://u:s3cret@db.example.com/db"
	ca := newAuthority(t).file
	for query, want := range map[string]int{
		"": 0, "?sslmode=prefer": 0, "?sslmode=disable": 0, "?sslmode=verify-full": 0,
		"?sslmode=require&sslrootcert=" + ca: 0, "?sslmode=require": 1,
	} {
		var log strings.Builder
		l, err := lockurl.Open(t.Context(), rawURL+query, &distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "sslmode=require"); got != want || strings.Contains(log.String(), "cret") {
			t.Errorf("%s: %d warnings, want %d: %s", query, got, want, log.String())
		}
	}
}
