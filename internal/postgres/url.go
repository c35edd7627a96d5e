package postgres

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Schemes are the URL schemes of PostgreSQL, with a space between them.
const Schemes = "postgres:// postgresql://"

var errForm = errors.New("it cannot be parsed: write postgres://user:password@host:5432/database?name=value, and " +
	"percent-encode the special characters in each part, such as %40 for @, %2F for / and %23 for #")

// secrets are parameters of libpq, and the environment variables that set them.
var secrets = map[string]string{"password": "PGPASSWORD", "sslpassword": "PGSSLPASSWORD"}

// ParseURL returns the configuration of a pool, and the parameter schema, which is empty if the URL
// has none. All other parameters are those of pgxpool.ParseConfig, without password and sslpassword.
// ParseURL connects to no server. No error shows a part of a password.
func ParseURL(rawURL string) (config *pgxpool.Config, schema string, err error) {
	if scheme, _, _ := strings.Cut(rawURL, "://"); !slices.Contains(strings.Fields(Schemes), scheme+"://") {
		return nil, "", errForm // pgx reads another text as a list of name=value
	}
	if err := checkSecrets(rawURL); err != nil {
		return nil, "", err
	}
	config, err = pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, "", withoutURL(err)
	}
	parameters := config.ConnConfig.RuntimeParams
	for _, name := range []string{"namespace", "ttl", "wait"} {
		if _, given := parameters[name]; given {
			return nil, "", fmt.Errorf("%s is a parameter of lockurl.Open alone: set it in the options", name)
		}
	}
	schema, given := parameters["schema"]
	switch {
	case given && schema == "":
		return nil, "", errors.New("schema is empty, which would mean the default: give it a value, or leave it out")
	case given && !isSchemaName(schema):
		return nil, "", fmt.Errorf("schema: %w", errSchemaName)
	}
	delete(parameters, "schema")
	return config, schema, nil
}

// checkSecrets refuses a URL whose password may not be where pgx looks for it.
//
// ⚑ A special character that is not percent-encoded moves a part of a password into the host, the
// database or the parameters. pgx quotes these in its errors, also in those of a later connection.
// Such a URL has a second @ or a #. In a parameter, the character & does the same.
func checkSecrets(rawURL string) error {
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	if strings.Count(rest[:end], "@") > 1 || strings.ContainsAny(rest[end:], "@#") {
		return errForm
	}
	_, query, _ := strings.Cut(rest[end:], "?")
	for pair := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(pair, "=")
		key, _ = url.PathUnescape(strings.TrimSpace(key))
		if variable := secrets[key]; variable != "" {
			return fmt.Errorf("%s is not a parameter here: set the environment variable %s, or write "+
				"user:password@ before the host", key, variable)
		}
	}
	return nil
}

// withoutURL returns an error of pgx without the URL, which stands between backquotes.
func withoutURL(err error) error {
	text := err.Error()
	_, reason, _ := strings.Cut(text[strings.LastIndexByte(text, '`')+1:], ": ")
	if strings.HasPrefix(reason, "failed to parse as URL") { // and a part of the URL
		return errForm
	}
	return fmt.Errorf("it cannot be parsed: %s", reason)
}
