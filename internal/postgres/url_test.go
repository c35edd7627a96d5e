package postgres_test

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/postgres"
)

func TestParseURL_schemaIsItsOwnParameter(t *testing.T) {
	for rawURL, want := range map[string]string{
		"postgres://u:p@h:5433/db":                                    "",
		"postgresql://u:p@h:5433/db?schema=locks":                     "locks",
		"postgres://u:p@h:5433/db?application_name=a&schema=my%5Fown": "my_own",
	} {
		config, schema, err := postgres.ParseURL(rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		if _, sent := config.ConnConfig.RuntimeParams["schema"]; sent || schema != want {
			t.Errorf("%s: schema %q, want %q; sent to the server: %t", rawURL, schema, want, sent)
		}
		c := config.ConnConfig
		if c.Host != "h" || c.Port != 5433 || c.Database != "db" || c.User != "u" || c.Password != "p" {
			t.Errorf("%s: %s:%d/%s of %s", rawURL, c.Host, c.Port, c.Database, c.User)
		}
	}
}

func TestParseURL_refusalShowsNoPassword(t *testing.T) {
	for name, bad := range map[string]struct{ url, text string }{
		"slash":                   {"postgres://u:s3/cret@h/db", "percent-encode"},
		"question mark":           {"postgres://u:s3?cret@h/db", "percent-encode"},
		"query in a password":     {"postgres://u:12?x=s3&y=cret@h", "percent-encode"},
		"hash":                    {"postgres://u:s3#cret@h/db", "percent-encode"},
		"at":                      {"postgres://u:s3@cret@h/db", "percent-encode"},
		"at in a parameter":       {"postgres://h/db?password=s3@cret", "percent-encode"},
		"fragment":                {"postgres://h/db#s3cret", "percent-encode"},
		"percent in a password":   {"postgres://u:s3%cret@h/db", "percent-encode"},
		"a parameter":             {"postgres://h/db?x=y&password=s3&cret", "password is not a parameter here: set the environment variable PGPASSWORD"},
		"encoded name":            {"postgres://h/db?p%61ssword=s3&cret=1", "password is not a parameter here"},
		"percent in a parameter":  {"postgres://h/db?password=s3%cret", "password is not a parameter here"},
		"space in a password":     {"postgres://u:s3 cret@h/db", "percent-encode"},
		"backquote in a password": {"postgres://u:s3`: cret@h/db?sslmode=on", "percent-encode"},
		"port":                    {"postgres://u:s3cret@h:port/db", "it cannot be parsed: invalid port"},
		"password, and no host":   {"postgres://u:12?s3cret", "percent-encode"},
		"percent, and no host":    {"postgres://u:s3%cret", "percent-encode"},
		"password as a port":      {"postgres://u:s3cret/db", "it cannot be parsed: invalid port"},
		"sslmode":                 {"postgres://u:s3cret@h/db?sslmode=on", "it cannot be parsed: failed to configure TLS (sslmode is invalid)"},
		"authority":               {"postgres://u:s3cret@h/db?sslrootcert=/no/such/file", "open /no/such/file"},
		"key":                     {"postgres://h/db?sslpassword=s3&cret", "PGSSLPASSWORD"},
		"pool size":               {"postgres://u:s3cret@h/db?pool_max_conns=0", "pool_max_conns too small"},
		"parameter without =":     {"postgres://u:s3cret@h/db?ssl", "?name=value"},
		"another backend":         {"redis://u:s3cret@h:6379/0", "write postgres://"},
		"no URL":                  {"host=h password=s3cret", "write postgres://"},
		"empty schema":            {"postgres://u:s3cret@h/db?schema=", "schema is empty"},
		"namespace":               {"postgres://u:s3cret@h/db?namespace=a", "namespace is a parameter of lockurl.Open alone"},
		"ttl":                     {"postgres://u:s3cret@h/db?ttl=1s", "ttl is a parameter of lockurl.Open alone"},
		"wait":                    {"postgres://u:s3cret@h/db?wait=1s", "wait is a parameter of lockurl.Open alone"},
	} {
		config, _, err := postgres.ParseURL(bad.url)
		if err == nil {
			t.Errorf("%s: accepted, with host %s", name, config.ConnConfig.Host)
			continue
		}
		if text := err.Error(); !strings.Contains(text, bad.text) || strings.Contains(text, "s3") || strings.Contains(text, "cret") {
			t.Errorf("%s: %v; want %q, and no part of the password", name, err, bad.text)
		}
	}
}
