package lockurl_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
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
	"github.com/belugalock/belugalock/internal/test/leakcheck"
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

// startSecured starts a server whose certificate is valid for 127.0.0.1 only.
func startSecured(t *testing.T) *secured {
	return startSecuredAs(t, loopback())
}

func loopback() *x509.Certificate {
	return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
}

// startSecuredAs starts a server whose certificate is valid for the names of a template.
func startSecuredAs(t *testing.T, names *x509.Certificate, args ...string) *secured {
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
	listener, err := servers.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return listener.Addr().String(), port
}

// url returns the URL of the server with the given name of its host.
func (s *secured) url(scheme, host string) string {
	_, port, _ := net.SplitHostPort(s.addr)
	return scheme + "://:" + tlsPassword + "@" + net.JoinHostPort(host, port)
}

// The error names the reason why a certificate is not trusted. A server without TLS does not
// answer.
func TestOpen_tlsRefusesUntrustedServer(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	withoutTLS := strings.Replace(s.url("rediss", "127.0.0.1"), s.addr, s.Addr(), 1) + "?dial_timeout=50ms&max_retries=-1"
	const untrusted = "certificate signed by unknown authority"
	for name, c := range map[string]struct{ url, text string }{
		"an authority that is not trusted": {s.url("rediss", "127.0.0.1") + "?max_retries=-1", untrusted},
		"another name":                     {s.url("rediss", "localhost") + "?max_retries=-1", "x509: "},
		"a server without TLS":             {withoutTLS, "timeouts of the client"},
		"a client without TLS":             {s.url("redis", "127.0.0.1") + "?max_retries=-1", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, c.url).Acquire(t.Context(), "key")
			if !errors.Is(err, distlock.ErrUnavailable) || !strings.Contains(err.Error(), c.text) ||
				strings.Contains(err.Error(), tlsPassword) {
				t.Error(err)
			}
		})
	}
}

// tlsChild is an environment variable: the URL of the server for the child process, which trusts
// the authority.
const tlsChild = "LOCKURL_TEST_TLS_URL"

// SSL_CERT_FILE gives an authority to the process.
func TestOpen_tlsTrustsEnvironmentAuthority(t *testing.T) {
	if url := os.Getenv(tlsChild); url != "" {
		checkLocks(t, url)
		checkHandoff(t, open(t, url), open(t, url))
		checkUntrusted(t, url+"?tls_ca="+newAuthority(t).file, "unknown authority") // tls_ca trusts no others
		return
	}
	t.Parallel()
	s := startSecured(t)
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
	s := startSecured(t)
	verified := s.url("valkeys", "127.0.0.1") + "?tls_ca=" + s.file
	for url, want := range map[string]int{
		verified: 0, verified + "&skip_verify=false": 0,
		s.url("valkeys", "127.0.0.1") + "?skip_verify=1": 1,
	} {
		var log strings.Builder
		l, err := lockurl.Open(t.Context(), url, &distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		checkHandoff(t, l, l)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "skip_verify"); got != want || strings.Contains(log.String(), tlsPassword) {
			t.Errorf("%d warnings, want %d: %s", got, want, log.String())
		}
	}
}

// Without tls_server_name, the first host of the URL says nothing about the others: here the
// certificate is not valid for that one.
func TestOpen_tlsVerifiesOwnAddress(t *testing.T) {
	t.Parallel()
	forAll(t, loopback(), func(t *testing.T, s *secured, url string) {
		url += "tls_ca=" + s.file
		checkHandoff(t, open(t, url), open(t, url))
		checkUntrusted(t, url+"&tls_server_name=localhost", "localhost")
	})
}

func TestOpen_tlsServerName(t *testing.T) {
	t.Parallel()
	forAll(t, &x509.Certificate{DNSNames: []string{"redis.test"}}, func(t *testing.T, s *secured, url string) {
		url += "tls_ca=" + s.file
		checkUntrusted(t, url, "127.0.0.1")
		url += "&tls_server_name=redis.test"
		checkHandoff(t, open(t, url), open(t, url))
	})
}

// forAll runs a test with each topology. In the URL, localhost is the first host of several, and does not
// answer. The URL takes more parameters.
func forAll(t *testing.T, names *x509.Certificate, test func(t *testing.T, s *secured, url string)) {
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		s := startSecuredAs(t, names)
		test(t, s, s.url("rediss", "127.0.0.1")+"?")
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := startSecuredAs(t, names)
		addr, port := freeAddr(t)
		servers.StartSentinelFor(t, s.addr, slices.Concat(s.files, []string{"--tls-port", port,
			"--tls-auth-clients", "no", "--tls-replication", "yes"})...)
		test(t, s, "rediss+sentinel://:"+tlsPassword+"@localhost:1,"+addr+"?master_name=belugalock&")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		_, bus := freeAddr(t)
		s := startSecuredAs(t, names, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", bus,
			"--cluster-announce-ip", "127.0.0.1")
		node := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: tlsPassword})
		defer node.Close()
		if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
			t.Fatal(err)
		}
		servers.Await(t, 10*time.Second, "the Cluster is complete", func() bool {
			return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
		test(t, s, "rediss+cluster://:"+tlsPassword+"@localhost:1,"+s.addr+"?")
	})
}

// checkUntrusted expects that a certificate is not valid for a name. It leaves out the host that does not
// answer: in a Cluster, the error is that of any host.
func checkUntrusted(t *testing.T, url, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := open(t, strings.Replace(url, "localhost:1,", "", 1)+"&max_retries=-1").TryAcquire(ctx, "key")
	if !errors.Is(err, distlock.ErrUnavailable) || !strings.Contains(err.Error(), "x509: ") ||
		!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), tlsPassword) {
		t.Errorf("the error is %v, want one of the certificate for %s", err, name)
	}
}

// A server that demands a certificate gets that of the URL.
func TestOpen_tlsClientCertificate(t *testing.T) {
	t.Parallel()
	s := startSecuredAs(t, loopback(), "--tls-auth-clients", "yes")
	certificate, key := s.issue(t, &x509.Certificate{})
	url := s.url("rediss", "127.0.0.1") + "?max_retries=-1&tls_ca=" + s.file
	if _, err := open(t, url).TryAcquire(t.Context(), "key"); !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("without a certificate: %v", err)
	}
	url += "&tls_cert=" + certificate + "&tls_key=" + key
	checkHandoff(t, open(t, url), open(t, url))
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

// checkHandoff uses each kind of connection: for commands, for extends, and for notifications.
func checkHandoff(t *testing.T, one, other *distlock.Locker) {
	t.Helper()
	lease := acquire(t, one)
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	got := make(chan error, 1)
	go func() { got <- other.Do(t.Context(), "key", func(context.Context) error { return nil }) }()
	awaitWaiter(t, one)
	stop, start := leakcheck.Stalls(), time.Now()
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	err := <-got
	// Without notifications the waiter asks again after 3 s.
	if took := time.Since(start) - stop(); err != nil || took > time.Second {
		t.Errorf("the waiter holds the lock after %s: %v", took, err)
	}
}
