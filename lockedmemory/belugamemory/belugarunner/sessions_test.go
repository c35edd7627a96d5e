package belugarunner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
)

// alias returns the same session for all IDs.
type alias struct {
	runtime.SessionService
	id string
}

func (a alias) Get(ctx context.Context, _ string) (*runtime.Session, error) {
	return a.SessionService.Get(ctx, a.id)
}

// The lease belongs to the run's ID, so a run of another ID may not write the session.
func TestOwnService_S1_anotherID_refused(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		a := p.with(t, echo)
		p.sessions.SessionService = alias{p.sessions.SessionService, p.session}
		p.session = "another ID"
		answer, err := p.oneError(t.Context(), a, "q")
		if answer != "" {
			t.Errorf("the client got the answer %q, which is not stored", answer)
		}
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	})
}

// A service may create a session with another ID, as that of Beluga does. The run stores its turn there.
func TestOwnService_createsAnotherID(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		p.session = "unknown"
		a := p.with(t, echo)
		updates := 0
		p.sessions.updated = func() { updates++ }
		if answer, errs := p.say(t.Context(), a, "q"); answer != "answer to q" || errs != nil || updates != 1 || !p.free(t, a) {
			t.Errorf("%q, %v, and %d Updates; the lock is free: %t", answer, errs, updates, p.free(t, a))
		}
	})
}

// broken fails with its own errors.
type broken struct {
	runtime.SessionService
	err error
}

func (b broken) Get(context.Context, string) (*runtime.Session, error) { return nil, b.err }

func TestOwnService_errors_unchanged(t *testing.T) {
	onFakeTime(t, func(t *testing.T, p *place) {
		full := errors.New("the disk is full")
		p.sessions.SessionService = broken{p.sessions.SessionService, full}
		if _, errs := p.say(t.Context(), p.with(t, echo), "q"); len(errs) != 1 || errs[0] != full {
			t.Errorf("%v", errs)
		}
	})
}
