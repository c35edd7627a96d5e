package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock/driver"
)

func answer(severity, code string) error {
	return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "localized", SeverityUnlocalized: severity, Code: code})
}

// An error has a kind only if the statement has certainly had no effect.
func TestKindOf_C_onlyWhatIsCertain(t *testing.T) {
	all := []error{driver.ErrTemporary, driver.ErrRefused, driver.ErrRights, driver.ErrFloor, driver.ErrForeign}
	for _, c := range []struct {
		err   error
		kinds []error // beside ErrNotDone; nil: the outcome is unknown
	}{
		{answer("ERROR", "40001"), []error{driver.ErrTemporary}},
		{answer("ERROR", "40P01"), []error{driver.ErrTemporary}},
		{answer("ERROR", "25006"), []error{driver.ErrTemporary}},
		{answer("ERROR", "53100"), []error{driver.ErrRefused}},
		{answer("ERROR", "53300"), []error{driver.ErrTemporary}},
		{answer("ERROR", "55P03"), []error{driver.ErrTemporary}},
		{answer("ERROR", "57014"), []error{driver.ErrTemporary}},
		{answer("ERROR", "42501"), []error{driver.ErrRefused, driver.ErrRights}},
		{answer("ERROR", "28000"), []error{driver.ErrRefused, driver.ErrRights}},
		{answer("ERROR", "3F000"), []error{driver.ErrRefused}},
		{answer("ERROR", "42P01"), []error{driver.ErrRefused}},
		{answer("ERROR", "42883"), []error{driver.ErrRefused}},
		{answer("ERROR", "22021"), []error{driver.ErrRefused}},
		{answer("ERROR", "23514"), []error{driver.ErrRefused}},
		{answer("ERROR", "BL001"), []error{driver.ErrFloor}},
		{answer("ERROR", "XX000"), []error{}},
		{answer("ERROR", "08P01"), nil}, // of a pooler whose server connection broke
		{answer("ERROR", ""), nil},
		{answer("FATAL", "57P01"), nil},
		{answer("FATAL", "40001"), nil},
		{answer("PANIC", "53100"), nil},
		{answer("", "40001"), nil},
		{io.ErrUnexpectedEOF, nil},
		{context.DeadlineExceeded, nil},
	} {
		err := KindOf(c.err)
		if !errors.Is(err, c.err) || driver.MayHaveEffect(err) != (c.kinds == nil) || errors.Is(err, driver.ErrNotDone) != (c.kinds != nil) {
			t.Errorf("%v: %v", c.err, err)
		}
		for _, kind := range all {
			want := false
			for _, k := range c.kinds {
				want = want || k == kind
			}
			if errors.Is(err, kind) != want {
				t.Errorf("%v is the kind %q: %t", c.err, kind, !want)
			}
		}
	}
	if err := notDone(answer("FATAL", "28P01")); !errors.Is(err, driver.ErrRights) || driver.MayHaveEffect(err) {
		t.Errorf("a refused password: %v", err)
	}
	if err := notDone(answer("FATAL", "53300")); !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
		t.Errorf("a server without a free connection: %v", err)
	}
}

// The server quotes the bytes that it cannot store. They may be of a name.
func TestKindOf_C_badBytes_showsNone(t *testing.T) {
	err := KindOf(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "22021", Message: "invalid byte sequence: 0xff"})
	if text := fmt.Sprintf("%v %+v %s", err, err, fmt.Errorf("pgstore: %w", err)); strings.Contains(text, "0x") {
		t.Error(text)
	}
}

// While the servers of a URL fail over, the same call may succeed in a moment.
func TestNotDone_L_severalHosts_isTemporary(t *testing.T) {
	for url, want := range map[string]bool{
		"postgres://127.0.0.1:1/x":                            false, // with and without TLS
		"postgres://127.0.0.1:1/x?sslmode=disable":            false,
		"postgres://127.0.0.1:1,127.0.0.1:2/x?sslmode=prefer": true,
	} {
		_, err := pgconn.Connect(context.Background(), url)
		if err = notDone(err); errors.Is(err, driver.ErrTemporary) != want || driver.MayHaveEffect(err) {
			t.Errorf("%s: %v; is ErrTemporary: %t", url, err, !want)
		}
	}
}

// A server of another kind waits for more. The Locker must not read its silence as the end of a caller.
func TestNotDone_C_silentServer_saysWhatToChange(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = pgconn.Connect(ctx, "postgres://"+silent.Addr().String()+"/x")
	if err = notDone(err); errors.Is(err, context.DeadlineExceeded) || driver.MayHaveEffect(err) ||
		!strings.Contains(err.Error(), "correct host, port or sslmode") {
		t.Error(err)
	}
}

// Only what the server has undone is repeated.
func TestIsUndone_S1_unknownOutcome_notRepeated(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{answer("ERROR", "40001"), true}, {answer("ERROR", "40P01"), true},
		{answer("FATAL", "40001"), false}, {answer("ERROR", "25006"), false}, {io.EOF, false},
	} {
		if got := isUndone(KindOf(c.err)); got != c.want {
			t.Errorf("%v is repeated: %t", c.err, got)
		}
	}
}
