package lockurl_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// must is the result of a call that does not fail.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// open opens a URL. The end of the test closes the Locker.
func open(t *testing.T, url string) *distlock.Locker {
	t.Helper()
	l, err := lockurl.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// checkHandoff uses each kind of connection: for commands, for extends, and for notifications.
func checkHandoff(t *testing.T, url string) {
	t.Helper()
	one, other := open(t, url), open(t, url)
	lease := must(one.Acquire(t.Context(), "key"))
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	got := make(chan error, 1)
	go func() { got <- other.Do(t.Context(), "key", func(context.Context) error { return nil }) }()
	servers.Await(t, 10*time.Second, "a waiter in the queue", func() bool {
		info, err := one.Inspect(t.Context(), "key")
		return err == nil && info.Waiters == 1
	})
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

// checkRefusal expects an error about a URL that shows no part of its password.
func checkRefusal(t *testing.T, name string, err error, text string) {
	t.Helper()
	shown := fmt.Sprint(err)
	if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(shown, "lock URL: ") || !strings.Contains(shown, text) {
		t.Errorf("%s: the error is %v, want ErrInvalidOption and the text %q", name, err, text)
	}
	for _, secret := range []string{"s3", "cret", "12?", "12/", "12#"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%s: the text shows a part of the password: %v", name, err)
		}
	}
}

// checkWarnings expects that a Locker for a URL logs so many lines with a word, and no password.
func checkWarnings(t *testing.T, word string, want map[string]int) {
	t.Helper()
	for url, want := range want {
		var log strings.Builder
		l := must(lockurl.Open(t.Context(), url,
			&distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), word); got != want || strings.Contains(log.String(), "cret") {
			t.Errorf("%s: %d warnings, want %d: %s", url, got, want, log.String())
		}
	}
}

// authority signs certificates. No system trusts it.
type authority struct {
	dir         string
	file        string // with its own certificate
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	issued      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.file, _ = a.issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue returns the files of a certificate and of its private key. The first one is that of the
// authority, the others are for servers and for clients.
func (a *authority) issue(t *testing.T, names *x509.Certificate) (certificateFile, keyFile string) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := *names
	a.issued++
	template.SerialNumber = big.NewInt(a.issued)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a.certificate == nil {
		a.certificate, a.key = &template, key
		template.Subject.CommonName = "an authority for a test"
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	raw := must(x509.CreateCertificate(rand.Reader, &template, a.certificate, &key.PublicKey, a.key))
	private := must(x509.MarshalPKCS8PrivateKey(key))
	return a.write(t, "CERTIFICATE", raw), a.write(t, "PRIVATE KEY", private)
}

func (a *authority) write(t *testing.T, kind string, content []byte) string {
	t.Helper()
	file := filepath.Join(a.dir, fmt.Sprint(a.issued, kind, ".pem"))
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func loopback() *x509.Certificate {
	return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
}
