package belugarunner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// deletedMeanwhile calls call, which waits for the session s of r, and deletes the session before.
func deletedMeanwhile(t *testing.T, r *belugarunner.Runner, call func()) {
	t.Helper()
	ctx := core.WithSessionID(t.Context(), "s")
	var waiter sync.WaitGroup
	must(t, r.Locker().Do(ctx, "s", func(ctx context.Context) error {
		waiter.Go(call)
		servers.Await(t, 5*time.Second, "the call waits", func() bool {
			info, err := r.Locker().Inspect(ctx, "s")
			return err == nil && info.Waiters > 0
		})
		return r.Sessions().Delete(ctx, "s")
	}))
	waiter.Wait()
}

// The session is not created anew: its reader expects a history.
func TestErrors_deletedWhileWaiting_notFound(t *testing.T) {
	for name, url := range belugarunner.Backends(t) {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, answers(echo), url)
			other := newRunner(t, answers(echo), url, belugarunner.Options{TTL: 20 * time.Second}) // not the Locker
			begin := func() {
				t.Helper()
				succeeds(t)(say(t.Context(), r, "s", "hi"))
			}
			begin()
			deletedMeanwhile(t, r, func() {
				_, errs := say(t.Context(), other, "s", "q")
				if len(errs) != 1 {
					t.Fatalf("%v, want one error", errs)
				}
				refusedWith(t, errs[0], core.ErrNotFound, sessionstore.ErrDeleted)
			})
			if got := said(t, t.Context(), r, "s"); got != "no session" {
				t.Errorf("the session has %s", got)
			}
			begin()
			ctx := core.WithSessionID(t.Context(), "s")
			deletedMeanwhile(t, r, func() {
				must(t, other.Locker().Do(ctx, "s", func(ctx context.Context) error {
					_, got := other.Sessions().Get(ctx, "s")
					_, created := other.Sessions().Create(ctx, "agent")
					for _, err := range []error{got, created, other.Sessions().Delete(ctx, "s")} {
						refusedWith(t, err, core.ErrNotFound, sessionstore.ErrDeleted)
					}
					return nil
				}))
			})
		})
	}
}

// Beluga's agents and Runner put codes of their own around an error.
func TestErrors_insideAnother_keepTheirCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err       error
		code      core.ErrorCode
		retryable bool
	}{
		"lost":  {core.Errorf(core.ErrProviderDown, "generate failed: %w", distlock.ErrLost), belugamemory.ErrLockLost, false},
		"busy":  {core.NewError("team", core.ErrInvalidInput, "stage 1", core.NewError("x", core.ErrTimeout, "", distlock.ErrNotAcquired)), core.ErrTimeout, true},
		"model": {core.NewError("team", core.ErrInvalidInput, "stage 1", core.Errorf(core.ErrRateLimit, "slow down")), core.ErrInvalidInput, false},
		"named": {core.NewError("tool", core.ErrInvalidInput, "", core.NewError("belugamemory.answer", core.ErrProviderDown, "",
			distlock.ErrOutcomeUnknown)), core.ErrProviderDown, true},
		"not named": {core.NewError("tool", core.ErrProviderDown, "", core.NewError("belugamemory.save",
			belugamemory.ErrOutcomeUnknown, "", distlock.ErrOutcomeUnknown)), belugamemory.ErrOutcomeUnknown, false},
		"cancelled": {core.Errorf(core.ErrTimeout, "cancelled: %w", fmt.Errorf("%w: %w", distlock.ErrUnavailable, context.Canceled)),
			core.ErrProviderDown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t, answers(func(context.Context, string) (string, error) { return "", test.err }), "mem://",
				belugarunner.Options{Namespace: t.Name()[len("TestErrors_"):]})
			var errs []error
			for _, err := range r.Run(t.Context(), "s", schema.NewHumanMessage("q")) {
				errs = append(errs, err)
			}
			if len(errs) != 1 {
				t.Fatalf("%v, want one error", errs)
			}
			refusedWith(t, errs[0], test.code, test.err)
			if belugamemory.Retryable(errs[0]) != test.retryable || belugamemory.Retryable(test.err) != test.retryable {
				t.Errorf("Retryable is %t for %v", !test.retryable, errs[0])
			}
		})
	}
	if belugamemory.Retryable(nil) || belugamemory.Retryable(errors.New("another")) || !belugamemory.Retryable(distlock.ErrUnavailable) {
		t.Error("wrong for plain errors")
	}
}

// meddles is a plugin that changes the session or the input.
type meddles struct {
	hooks
	before, after func(*runtime.Session, schema.Message) schema.Message
}

func (p *meddles) BeforeTurn(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
	if p.before != nil {
		return p.before(s, input), nil
	}
	return input, nil
}

func (p *meddles) AfterTurn(_ context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	if p.after != nil {
		p.after(s, nil)
	}
	return events, nil
}

// Beluga calls the methods of a typed nil in a goroutine without a recover, which ends the process.
func TestErrors_nilMessagesAndChangedIDs_sayWhatIsWrong(t *testing.T) {
	t.Parallel()
	q := schema.NewHumanMessage("q")
	renames := func(s *runtime.Session, input schema.Message) schema.Message { s.ID = "another"; return input }
	forgets := func(s *runtime.Session, input schema.Message) schema.Message { s.ID = ""; return input }
	for name, test := range map[string]struct {
		session, text string
		input         schema.Message
		plugin        meddles
		sentinel      error
	}{
		"a nil input":           {"s", "configuration: distlock: invalid option: a message is a nil *schema.HumanMessage", (*schema.HumanMessage)(nil), meddles{}, distlock.ErrInvalidOption},
		"a nil of another type": {"s", "nil *schema.AIMessage", (*schema.AIMessage)(nil), meddles{}, distlock.ErrInvalidOption},
		"a nil of a plugin": {"s", "BeforeTurn of a plugin: distlock: invalid option: a message is a nil *schema.HumanMessage", q, meddles{
			before: func(*runtime.Session, schema.Message) schema.Message { return (*schema.HumanMessage)(nil) }},
			distlock.ErrInvalidOption},
		"an empty ID":          {"", "session ID is empty", q, meddles{}, distlock.ErrInvalidKey},
		"an ID changed before": {"s", "a plugin has changed the ID", q, meddles{before: renames}, distlock.ErrInvalidOption},
		"an ID changed after":  {"s", "a plugin has changed the ID", q, meddles{after: renames}, distlock.ErrInvalidOption},
		"an ID removed after":  {"s", "a plugin has changed the ID", q, meddles{after: forgets}, distlock.ErrInvalidOption},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: "wrong " + name, Plugins: []runtime.Plugin{&test.plugin}})
			var errs []error
			for event, err := range r.Run(t.Context(), test.session, test.input) {
				if err == nil {
					t.Errorf("the event %v", event)
				}
				errs = append(errs, err)
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.text) {
				t.Fatalf("%v, want one error with %q", errs, test.text)
			}
			refusedWith(t, errs[0], core.ErrInvalidInput, test.sentinel)
			if got := said(t, t.Context(), r, "s"); got != "" && got != "no session" {
				t.Errorf("the session has %s", got)
			}
		})
	}
	r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: t.Name()})
	_, got := r.Sessions().Get(t.Context(), "")
	for _, err := range []error{got, r.Sessions().Delete(t.Context(), ""), r.Sessions().Update(t.Context(), &runtime.Session{})} {
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
		if err == nil || !strings.Contains(err.Error(), "session ID is empty") {
			t.Errorf("%v does not say that the ID is empty", err)
		}
	}
}
