package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Schemes are the URL schemes of PostgreSQL, with a space between them.
const Schemes = "postgres:// postgresql://"

// ParseURL returns the configuration of a pool, and the parameter schema, which is empty if the URL
// has none. All other parameters are those of pgxpool.ParseConfig. ParseURL connects to no server.
//
// No error shows a part of a password.
//
// ⚑ A special character that is not percent-encoded moves a part of a password into the host, the
// database or the parameters. pgx quotes these in its errors, also in those of a later connection.
// Such a URL has a second @ or a #.
func ParseURL(rawURL string) (config *pgxpool.Config, schema string, err error) {
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	if strings.Count(rest[:end], "@") > 1 || strings.ContainsAny(rest[end:], "@#") {
		return nil, "", errors.New("it cannot be parsed: percent-encode the special characters in user, " +
			"password and parameters, such as %40 for @, %2F for / and %23 for #")
	}
	config, err = pgxpool.ParseConfig(rawURL)
	if err != nil {
		text := err.Error()
		_, reason, _ := strings.Cut(text[strings.LastIndexByte(text, '`')+1:], ": ") // without the URL
		return nil, "", fmt.Errorf("it cannot be parsed: %s", reason)
	}
	parameters := config.ConnConfig.RuntimeParams
	for _, name := range []string{"namespace", "ttl", "wait"} {
		if _, given := parameters[name]; given {
			return nil, "", fmt.Errorf("%s is a parameter of lockurl.Open alone: set it in the options", name)
		}
	}
	schema, given := parameters["schema"]
	if given && schema == "" {
		return nil, "", errors.New("schema is empty, which would mean the default: give it a value, or leave it out")
	}
	delete(parameters, "schema")
	return config, schema, nil
}
