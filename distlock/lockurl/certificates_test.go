package lockurl_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates. No system trusts it.
type authority struct {
	dir         string
	file        string // with its own certificate
	roots       *x509.CertPool
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	issued      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), roots: x509.NewCertPool()}
	a.certificate, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority for a test"},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.roots.AddCert(a.certificate)
	a.file = a.write(t, "authority.pem", "CERTIFICATE", a.certificate.Raw)
	return a
}

// issue returns the files of a certificate, for servers and for clients, and of its private key.
func (a *authority) issue(t *testing.T, names *x509.Certificate) (certificateFile, keyFile string) {
	t.Helper()
	certificate, key := a.sign(t, &x509.Certificate{
		DNSNames: names.DNSNames, IPAddresses: names.IPAddresses, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, fmt.Sprint(a.issued, ".pem"), "CERTIFICATE", certificate.Raw),
		a.write(t, fmt.Sprint(a.issued, ".key"), "PRIVATE KEY", private)
}

// sign makes the certificate of a template, the authority's own first.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.issued++
	template.SerialNumber = big.NewInt(a.issued)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
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

func (a *authority) write(t *testing.T, name, kind string, content []byte) string {
	t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
