package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock/driver"
)

// kindError adds the kind of a failure without an effect to the error of pgx. kind may be nil.
type kindError struct{ kind, err error }

// ⚑ The server's text for code 22021 shows bytes of the name of a lock or session.
func (e *kindError) Error() string {
	if hasCode(e.err, "22021") {
		return "a name has a NUL or bytes that are not UTF-8, which PostgreSQL cannot store (SQLSTATE 22021)"
	}
	return e.err.Error()
}

func (e *kindError) Unwrap() []error {
	if e.kind == nil {
		return []error{driver.ErrNotDone, e.err}
	}
	return []error{driver.ErrNotDone, e.kind, e.err}
}

// notDone is the error of a call without an effect.
func notDone(err error) error {
	var kind error
	if server := serverError(err); server != nil {
		kind = kindOfCode(server.Code)
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		if kind == nil && hasOtherHost(connect.Config) {
			kind = driver.ErrTemporary // another server may be about to take over
		}
		err = &connectError{err, adviceFor(err)}
	}
	return &kindError{kind, err}
}

// hasOtherHost reports whether a connection could have led to several servers.
func hasOtherHost(config *pgconn.Config) bool {
	return slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != config.Host || f.Port != config.Port
	})
}

// connectError has one line, with the addresses and some advice.
type connectError struct {
	error
	advice string
}

func (e *connectError) Unwrap() error {
	if errors.Is(e.error, context.DeadlineExceeded) { // of the connection, and not of a caller
		return nil
	}
	return e.error
}

func (e *connectError) Error() string {
	tries := slices.Compact(strings.Split(e.error.Error(), "\n\t")) // with and without TLS, for each host
	return strings.Replace(strings.Join(tries, "; "), ":; ", ": ", 1) + e.advice
}

// adviceFor says what to change if no connection was made.
func adviceFor(err error) string {
	var dial *net.OpError
	var name *net.DNSError
	switch server := serverError(err); {
	case server != nil && server.Code == "3D000":
		return "; create the database, or correct its name"
	case server != nil && server.Code[:2] == "28":
		return "; check the user, the password and pg_hba.conf"
	case server != nil:
	case errors.As(err, &name), errors.As(err, &dial) && dial.Op == "dial":
		return "; start PostgreSQL, or correct host and port"
	case strings.Contains(err.Error(), "failed to receive message"), strings.Contains(err.Error(), "tls error"):
		return "; no PostgreSQL answers there with this sslmode: correct host, port or sslmode"
	}
	return ""
}

// KindOf gives the error of a statement, or of a connection that was not made, its kind.
//
// ⚑ Only an error with the severity ERROR says that the transaction was undone. After FATAL, a broken
// connection, or the end of ctx the outcome is unknown. So is an error of class 08: a pooler sends it
// for a server connection that broke. So is a closed connection: pgx says that, and that a repetition is
// safe, also if it has sent a COMMIT and has lost the answer.
func KindOf(err error) error {
	server := serverError(err)
	undone := server != nil && server.SeverityUnlocalized == "ERROR" && server.Code[:2] != "08"
	var connect *pgconn.ConnectError
	if undone || errors.As(err, &connect) || pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) {
		return notDone(err)
	}
	return err
}

// kindOfCode is the kind of a transaction that failed with this SQLSTATE.
func kindOfCode(code string) error {
	switch {
	case len(code) != 5:
		return nil
	case code == "BL001": // of the functions: the floor is too far ahead
		return driver.ErrFloor
	case code == "42501", code[:2] == "28":
		return driver.ErrRights
	case code == "53100": // the disk is full
		return driver.ErrRefused
	case code[:2] == "53", slices.Contains(temporary, code):
		return driver.ErrTemporary
	case slices.Contains(refusedClasses, code[:2]):
		return driver.ErrRefused
	}
	return nil
}

var (
	// temporary are the codes of a read-only server, of conflicts and timeouts, and of a server that
	// starts or stops.
	temporary = []string{"25006", "40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03"}
	// refusedClasses need an operator: unsupported feature, bad data, broken constraint, no such
	// database, no such schema, syntax or missing object.
	refusedClasses = []string{"0A", "22", "23", "3D", "3F", "42"}
)

func serverError(err error) *pgconn.PgError {
	var server *pgconn.PgError
	if errors.As(err, &server) && len(server.Code) == 5 {
		return server
	}
	return nil
}

func hasCode(err error, codes ...string) bool {
	server := serverError(err)
	return server != nil && slices.Contains(codes, server.Code)
}

// isUndone reports a conflict with concurrent transactions. A repetition may succeed.
func isUndone(err error) bool {
	return hasCode(err, "40001", "40P01") && errors.Is(err, driver.ErrTemporary)
}

// isForgotten reports that the server does not know the name of a statement, or has another one under it:
// a hook of the pool has run DISCARD or DEALLOCATE, check did not recognize a pooler, or the schema was
// made anew. Nothing was done.
func isForgotten(err error) bool {
	return hasCode(err, "26000", "42P05", "0A000") && errors.Is(err, driver.ErrNotDone)
}

// isReadOnly reports that the server is a standby, or was made read-only.
func isReadOnly(err error) bool { return hasCode(err, "25006") }

// isMissing reports that the schema, a table or a function does not exist.
func isMissing(err error) bool { return hasCode(err, "3F000", "42P01", "42883") }

// warned is the key of a connection's last warning.
const warned = "belugalock.warning"

// noteWarning stores a warning. ⚑ The server answers a commit with success and a warning if its wait
// for a synchronous standby was cancelled.
func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		c.CustomData()[warned] = n.Code
	}
}

func forgetWarning(c *pgconn.PgConn) { delete(c.CustomData(), warned) }

// lateFailure is an error without a kind if a call that was answered may not be committed: the server
// warned, or a hook has left a transaction open.
func lateFailure(c *pgconn.PgConn) error {
	if code, ok := c.CustomData()[warned]; ok {
		return fmt.Errorf("the server answered with a warning (SQLSTATE %v), so a standby may lack the change", code)
	}
	if c.TxStatus() != 'I' {
		return errors.New("a transaction is open on the connection: a hook of the pool must not begin one")
	}
	return nil
}
