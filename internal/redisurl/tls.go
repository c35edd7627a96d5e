package redisurl

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// tlsConfig takes the parameters of TLS out of the query, and reads their files. It returns nil for
// a scheme without TLS. ⚑ Without tls_server_name, ServerName stays empty. go-redis then verifies
// each Sentinel and each node by the address that it dials.
func (a *address) tlsConfig() (*tls.Config, error) {
	if !a.secure() {
		return nil, nil
	}
	ca, cert, key, name := a.take("tls_ca"), a.take("tls_cert"), a.take("tls_key"), a.take("tls_server_name")
	skip, err := strconv.ParseBool(cmp.Or(a.take("skip_verify"), "false"))
	switch {
	case err != nil:
		return nil, errors.New("skip_verify must be true or false: leave it out, so that certificates are verified")
	case skip && (ca != "" || name != ""):
		return nil, errors.New("with skip_verify, tls_ca and tls_server_name have no effect: leave skip_verify out, " +
			"so that certificates are verified")
	case (cert == "") != (key == ""):
		return nil, errors.New("tls_cert and tls_key are a pair: name both files, or none")
	}
	config := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: skip}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls_cert and tls_key: %w: name PEM files with a certificate and its private key", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if ca != "" {
		authorities, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w: name a PEM file that this process can read", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("tls_ca: the file has no certificate: name a PEM file with the certificates of authorities")
		}
	}
	return config, nil
}
