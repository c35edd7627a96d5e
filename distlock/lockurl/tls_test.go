package lockurl_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// secured is a Redis with TLS on a second port.
type secured struct {
	*servers.Redis
	*authority
	addr  string
	files []string // arguments of a server with the same certificate
}

const tlsPassword = "s3cret"

// startSecured starts a server whose certificate is valid for the names of a template.
func startSecured(t *testing.T, names *x509.Certificate, args ...string) *secured {
	t.Helper()
	s := &secured{authority: newAuthority(t)}
	certificate, key := s.issue(t, names)
	s.files = []string{"--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", s.file}
	port := ""
	s.addr, port = freeAddr(t)
	s.Redis = servers.StartRedis(t, slices.Concat(s.files, []string{"--requirepass", tlsPassword, "--tls-port", port,
		"--tls-auth-clients", "no"}, args)...)
	return s
}

// freeAddr returns an address of 127.0.0.1 and its port.
func freeAddr(t *testing.T) (addr, port string) {
	t.Helper()
	listener := must(servers.Listen())
	defer listener.Close()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return listener.Addr().String(), port
}

// url returns the URL of the server with the given name of its host.
func (s *secured) url(scheme, host string) string {
	_, port, _ := net.SplitHostPort(s.addr)
	return scheme + "://:" + tlsPassword + "@" + net.JoinHostPort(host, port)
}

// checkUnavailable expects a failure that a text explains, without the password.
func checkUnavailable(t *testing.T, url string, texts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := open(t, url).TryAcquire(ctx, "key")
	if !errors.Is(err, distlock.ErrUnavailable) || strings.Contains(err.Error(), tlsPassword) {
		t.Fatal(err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q", err, text)
		}
	}
}

// checkUntrusted expects that a certificate is not valid for a name. It leaves out the host that does not
// answer: in a Cluster, the error is that of any host.
func checkUntrusted(t *testing.T, url, name string) {
	t.Helper()
	checkUnavailable(t, strings.Replace(url, "localhost:1,", "", 1)+"&max_retries=-1", "x509: ", name)
}

// The error names the reason why a certificate is not trusted. A server without TLS does not answer.
func TestOpen_tlsRefusesUntrustedServer(t *testing.T) {
	t.Parallel()
	s := startSecured(t, loopback())
	withoutTLS := strings.Replace(s.url("rediss", "127.0.0.1"), s.addr, s.Addr(), 1) + "?dial_timeout=50ms&max_retries=-1"
	for name, c := range map[string]struct{ url, text string }{
		"an authority that is not trusted": {s.url("rediss", "127.0.0.1") + "?max_retries=-1", "signed by unknown authority"},
		"another name":                     {s.url("rediss", "localhost") + "?max_retries=-1", "x509: "},
		"a server without TLS":             {withoutTLS, "timeouts of the client"},
		"a client without TLS":             {s.url("redis", "127.0.0.1") + "?max_retries=-1", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkUnavailable(t, c.url, c.text)
		})
	}
}

// tlsChild is an environment variable: the URL of the server for the child process, which trusts
// the authority.
const tlsChild = "LOCKURL_TEST_TLS_URL"

// SSL_CERT_FILE gives an authority to the process.
func TestOpen_tlsTrustsEnvironmentAuthority(t *testing.T) {
	if url := os.Getenv(tlsChild); url != "" {
		checkHandoff(t, url)
		checkUntrusted(t, url+"?tls_ca="+newAuthority(t).file, "unknown authority") // tls_ca trusts no others
		return
	}
	t.Parallel()
	s := startSecured(t, loopback())
	// A process reads its authorities once.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "SSL_CERT_FILE="+s.file, "SSL_CERT_DIR="+t.TempDir(),
		tlsChild+"="+s.url("rediss", "127.0.0.1"))
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOpen_tlsSkipVerify_warnsOnce(t *testing.T) {
	t.Parallel()
	s := startSecured(t, loopback())
	verified, skips := s.url("valkeys", "127.0.0.1")+"?tls_ca="+s.file, s.url("valkeys", "localhost")+"?skip_verify=1"
	checkHandoff(t, verified)
	checkHandoff(t, skips)
	checkWarnings(t, "skip_verify", map[string]int{verified: 0, verified + "&skip_verify=false": 0, skips: 1})
}

// Without tls_server_name, the first host of the URL says nothing about the others: here the
// certificate is not valid for that one.
func TestOpen_tlsVerifiesOwnAddress(t *testing.T) {
	t.Parallel()
	forAll(t, loopback(), func(t *testing.T, url string) {
		checkHandoff(t, url)
		checkUntrusted(t, url+"&tls_server_name=localhost", "localhost")
	})
}

func TestOpen_tlsServerName(t *testing.T) {
	t.Parallel()
	forAll(t, &x509.Certificate{DNSNames: []string{"redis.test"}}, func(t *testing.T, url string) {
		checkUntrusted(t, url, "127.0.0.1")
		checkHandoff(t, url+"&tls_server_name=redis.test")
	})
}

// forAll runs a test with each topology. In the URL, localhost is the first host of several, and does not
// answer. The URL trusts the authority.
func forAll(t *testing.T, names *x509.Certificate, test func(t *testing.T, url string)) {
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		s := startSecured(t, names)
		test(t, s.url("rediss", "127.0.0.1")+"?tls_ca="+s.file)
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := startSecured(t, names)
		addr, port := freeAddr(t)
		servers.StartSentinelFor(t, s.addr, slices.Concat(s.files, []string{"--tls-port", port,
			"--tls-auth-clients", "no", "--tls-replication", "yes"})...)
		test(t, "rediss+sentinel://:"+tlsPassword+"@localhost:1,"+addr+"?master_name=belugalock&tls_ca="+s.file)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		_, bus := freeAddr(t)
		s := startSecured(t, names, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", bus,
			"--cluster-announce-ip", "127.0.0.1")
		node := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: tlsPassword})
		defer node.Close()
		must(node.ClusterAddSlotsRange(t.Context(), 0, 16383).Result())
		servers.Await(t, 10*time.Second, "the Cluster is complete", func() bool {
			return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
		test(t, "rediss+cluster://:"+tlsPassword+"@localhost:1,"+s.addr+"?tls_ca="+s.file)
	})
}

// A server that demands a certificate gets that of the URL.
func TestOpen_tlsClientCertificate(t *testing.T) {
	t.Parallel()
	s := startSecured(t, loopback(), "--tls-auth-clients", "yes")
	certificate, key := s.issue(t, &x509.Certificate{})
	url := s.url("rediss", "127.0.0.1") + "?max_retries=-1&tls_ca=" + s.file
	checkUnavailable(t, url)
	checkHandoff(t, url+"&tls_cert="+certificate+"&tls_key="+key)
}

func TestOpen_tlsRefusesBadFiles(t *testing.T) {
	a := newAuthority(t)
	certificate, key := a.issue(t, &x509.Certificate{})
	_, other := a.issue(t, &x509.Certificate{})
	// A relative name: the digits of a temporary directory could look like a part of the password.
	missing, pair := "missing.pem", "name PEM files with a certificate and its private key"
	for query, text := range map[string]string{
		"tls_ca=" + missing: "name a PEM file that this process can read",
		"tls_ca=" + key:     "the file has no certificate",
		"tls_cert=" + certificate + "&tls_key=" + missing:    pair,
		"tls_cert=" + certificate + "&tls_key=" + other:      pair,
		"tls_cert=" + certificate + "&tls_key=" + a.file:     pair,
		"tls_cert=" + certificate + "&client_name=s3cret":    "tls_cert and tls_key are a pair",
		"sentinel_password=s3cret&tls_cert=/a&tls_key=/b":    "sentinel_password is not a parameter here",
		"skip_verify=true&tls_ca=" + a.file + "&max_retries": "leave skip_verify out",
	} {
		for _, scheme := range []string{"rediss", "valkeys+cluster"} {
			_, err := lockurl.Open(t.Context(), scheme+"://:s3cret@localhost?"+query, nil)
			checkRefusal(t, query, err, text)
		}
	}
}

func TestOpen_postgres_tlsVerifiesServer(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	db := server.NewDatabase(t)
	must(0, pglock.Migrate(t.Context(), pool(t, db), nil))
	ca := newAuthority(t)
	certificate, key := ca.issue(t, loopback())
	for file, name := range map[string]string{certificate: "server.crt", key: "server.key"} {
		// Into the directory of the server, for its user alone.
		must(server.Do("COPY (SELECT unnest(string_to_array(trim('" + string(must(os.ReadFile(file))) + "'), E'\n'))) " +
			"TO PROGRAM 'umask 077; cat > " + name + "'"))
	}
	must(server.Do("ALTER SYSTEM SET ssl = on"))
	must(server.Do("SELECT pg_reload_conf()"))
	url := strings.Replace(db.URL(), "sslmode=disable", "sslmode=verify-full", 1)
	trusted := url + "&sslrootcert=" + ca.file
	servers.Await(t, 10*time.Second, "the server speaks TLS", func() bool {
		_, err := open(t, trusted).TryAcquire(t.Context(), "first")
		return err == nil
	})
	checkHandoff(t, trusted)
	if n := must(db.Do("SELECT count(*) FROM pg_stat_ssl WHERE ssl")); n == "0" {
		t.Error("no connection over TLS")
	}
	checkUnavailable(t, url+"&sslrootcert="+newAuthority(t).file, "x509: certificate signed by unknown authority")
	checkUnavailable(t, strings.Replace(trusted, "127.0.0.1", "localhost", 1),
		"x509: certificate is not valid for any names, but wanted to match localhost")
}

func TestOpen_postgres_unverifiedTLS_warnsOnce(t *testing.T) {
	t.Parallel()
	const url = "postgres://u:s3cret@db.example.com/db"
	checkWarnings(t, "sslmode=require", map[string]int{
		url: 0, url + "?sslmode=prefer": 0, url + "?sslmode=disable": 0, url + "?sslmode=verify-full": 0,
		url + "?sslmode=require&sslrootcert=" + newAuthority(t).file: 0, url + "?sslmode=require": 1,
	})
}
