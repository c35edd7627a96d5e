package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// DefaultSchema is the schema of the tables and functions unless the caller names another.
const DefaultSchema = "belugalock"

// Schema is a schema of the database, and the parts that it must have. The zero Schema is the
// default one without parts.
type Schema struct {
	Name  string // empty: DefaultSchema
	Parts []Part
}

// Part is one part of a schema, with versions of its own.
type Part struct {
	Name string // "lock", "fence", "store"
	// Versions is the SQL of version 1, of version 2 from version 1, and so on, see [Schema.In].
	// Functions of an earlier version stay as they are.
	Versions []string
	// Command is the call that installs the part, for errors: "pglock.Migrate".
	Command string
}

// Source joins files of SQL of a folder, in an order in which each name is known before its use.
func Source(files embed.FS, folder string, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, err := files.ReadFile(path.Join(folder, name+".sql"))
		if err != nil {
			panic(err) // the file is not embedded
		}
		b.Write(text)
	}
	return b.String()
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Validate refuses a name that would need quotes to be read as it is, with distlock.ErrInvalidOption.
func (s Schema) Validate() error {
	if !isSchemaName(s.name()) {
		return fmt.Errorf("%w: Schema: %w", distlock.ErrInvalidOption, errSchemaName)
	}
	return nil
}

func isSchemaName(name string) bool {
	return schemaName.MatchString(name) && !strings.HasPrefix(name, "pg_")
}

var errSchemaName = errors.New("a schema has 1 to 63 lower-case letters, digits or _, and does not begin with a digit or pg_")

func (s Schema) name() string { return cmp.Or(s.Name, DefaultSchema) }

// In puts the quoted name of the schema in the place of each {schema}.
func (s Schema) In(sql string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{s.name()}.Sanitize())
}

// check refuses a database without the schema, with a part that is missing or older, or with another
// encoding than UTF8. ⚑ With another encoding of the connection, a name would be two names for two
// programs.
//
// ⚑ check also finds a pooler: its handshake names another process than the one that answers.
func (p *Pool) check(ctx context.Context, c *pgx.Conn) error {
	for parameter, of := range map[string]string{"server_encoding": "database", "client_encoding": "connection"} {
		if encoding := c.PgConn().ParameterStatus(parameter); encoding != "" && encoding != "UTF8" {
			return fmt.Errorf("%w: the encoding of the %s is %s: use UTF8", driver.ErrRefused, of, encoding)
		}
	}
	versions := make([]string, len(p.schema.Parts))
	for i, part := range p.schema.Parts {
		versions[i] = "{schema}.version_v1(" + literal(part.Name) + ")"
	}
	sql := p.schema.In("SELECT pg_backend_pid(), current_setting('transaction_isolation'), " +
		"ARRAY[" + strings.Join(versions, ",") + "]::integer[]")
	var pid uint32
	var isolation string
	var found []int
	if err := c.QueryRow(ctx, sql, pgx.QueryExecModeExec).Scan(&pid, &isolation, &found); err != nil {
		return p.schema.unusable(err)
	}
	for i, part := range p.schema.Parts {
		if want := len(part.Versions); found[i] < want {
			return fmt.Errorf("%w: the schema %q has version %d of its part %q, and this program needs version %d: run %s "+
				"as its owner", driver.ErrRefused, p.schema.name(), found[i], part.Name, want, part.Command)
		}
	}
	if pid != c.PgConn().PID() {
		p.pooled.Store(true)
		p.unnamed.Store(true)
	}
	if isolation != "read committed" {
		p.strict.Store(true)
	}
	p.checked.Store(true)
	return nil
}

// unusable says what to do if the schema, or a right to use it, is missing.
func (s Schema) unusable(err error) error {
	switch {
	case isMissing(err):
		return fmt.Errorf("%w (%v)", s.missing(), err)
	case hasCode(err, "42501"):
		return fmt.Errorf("%w; grant the role of this program USAGE on the schema %q and EXECUTE on all functions in it",
			err, s.name())
	}
	return err
}

// missing says how to install the parts.
func (s Schema) missing() error {
	commands := make([]string, len(s.Parts))
	for i, part := range s.Parts {
		commands[i] = part.Command
	}
	return fmt.Errorf("%w: the schema %q is missing in the database: run %s as a role "+
		"that may create it", driver.ErrRefused, s.name(), strings.Join(commands, " and "))
}
