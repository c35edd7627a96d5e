package belugarunner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// inSession returns a context of a session.
func inSession(t testing.TB, id string) context.Context { return core.WithSessionID(t.Context(), id) }

// mustHaveCode checks the outermost error, as an application of Beluga does.
func mustHaveCode(t testing.TB, err error, code core.ErrorCode, sentinel error) {
	t.Helper()
	var coded *core.Error
	switch {
	case !errors.As(err, &coded):
		t.Errorf("no error of package core: %v", err)
	case coded.Code != code:
		t.Errorf("code %s, want %s: %v", coded.Code, code, err)
	case !errors.Is(err, sentinel):
		t.Errorf("does not match %q: %v", sentinel, err)
	case coded.Op == "" || !strings.HasPrefix(coded.Op, "belugarunner."):
		t.Errorf("Op is %q", coded.Op)
	}
}

// sharedURL returns the URL of the shared server without data. Only for tests that are not
// parallel.
func sharedURL(t testing.TB) string {
	t.Helper()
	server := servers.SharedServer()
	_, err := server.Do("FLUSHALL")
	must(t, err)
	return server.URL()
}

// backends returns a URL of each backend, without data.
func backends(t testing.TB) map[string]string {
	t.Helper()
	db := migrated.Database(t, servers.SharedPostgres(t))
	return map[string]string{"mem": "mem://", "redis": sharedURL(t), "postgres": db.URL()}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
