package lockurl_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

// secured is a Redis with TLS on a second port. Its certificate is valid for 127.0.0.1 only.
type secured struct {
	*testservers.Redis
	authority string // file with the certificate of the authority, which is not trusted by default
	roots     *x509.CertPool
	addr      string
}

const tlsPassword = "s3cret"

func startSecured(t *testing.T) *secured {
	t.Helper()
	dir := t.TempDir()
	s := &secured{authority: filepath.Join(dir, "authority.pem"), roots: x509.NewCertPool()}
	write := func(file, kind string, content []byte) {
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, signer = template, key
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		return certificate, key
	}
	authority, signer := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority for a test"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	certificate, key := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a server"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority, signer)
	s.roots.AddCert(authority)
	write(s.authority, "CERTIFICATE", authority.Raw)
	write(filepath.Join(dir, "server.pem"), "CERTIFICATE", certificate.Raw)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "server.key"), "PRIVATE KEY", private)

	listener, err := testservers.Listen()
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(s.addr)
	s.Redis = testservers.StartRedis(t, "--requirepass", tlsPassword, "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", filepath.Join(dir, "server.pem"), "--tls-key-file", filepath.Join(dir, "server.key"),
		"--tls-ca-cert-file", s.authority)
	return s
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
		return
	}
	t.Parallel()
	s := startSecured(t)
	// A process reads its authorities once.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "SSL_CERT_FILE="+s.authority, "SSL_CERT_DIR="+t.TempDir(),
		tlsChild+"="+s.url("rediss", "127.0.0.1"))
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOpen_tlsSkipVerify(t *testing.T) {
	t.Parallel()
	url := startSecured(t).url("rediss", "127.0.0.1") + "?skip_verify=true"
	checkHandoff(t, open(t, url), open(t, url))
}

// All connections of a Locker use the TLSConfig of the caller's client.
func TestRedislock_tlsOfTheClient(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	locker := func() *distlock.Locker {
		client := redis.NewClient(&redis.Options{
			Addr: s.addr, Password: tlsPassword, TLSConfig: &tls.Config{RootCAs: s.roots},
		})
		t.Cleanup(func() { _ = client.Close() })
		l, err := redislock.New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		return l
	}
	checkHandoff(t, locker(), locker())
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
