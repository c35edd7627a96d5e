package belugarunner

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait for servers, so more tests than processors run at once.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func second[T any](_ T, err error) error { return err }

// Over makes a Runner over a Locker, with an own SessionService.
func Over(a agent.Agent, locker *distlock.Locker, opts *Options) (*Runner, error) {
	r, err := newRunner(a, opts)
	if err == nil {
		err = r.lockWith(locker, noMemory{})
	}
	return r, err
}

// AwaitWorkers waits for the ends of all runs and of their workers.
func (r *Runner) AwaitWorkers() { r.open.Wait() }

// UpdateUnder is the Update of the worker of a run that has the lease.
func (r *Runner) UpdateUnder(lease *distlock.Lease, session *runtime.Session) error {
	return (&run{Runner: r, lease: lease, sessionID: session.ID}).update(context.Background(), session, "")
}
