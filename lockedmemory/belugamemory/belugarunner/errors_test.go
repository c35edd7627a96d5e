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
			talk(t, r, "s", "hi")
			deletedMeanwhile(t, r, func() {
				_, err := say(t, t.Context(), other, "s", "q")
				refusedWith(t, err, core.ErrNotFound, sessionstore.ErrDeleted)
			})
			if got := said(t, r, "s"); got != "no session" {
				t.Errorf("the session has %s", got)
			}
			talk(t, r, "s", "hi")
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
			_, err := say(t, t.Context(), r, "s", "q")
			refusedWith(t, err, test.code, test.err)
			if belugamemory.Retryable(err) != test.retryable || belugamemory.Retryable(test.err) != test.retryable {
				t.Errorf("Retryable is %t for %v", !test.retryable, err)
			}
		})
	}
	if belugamemory.Retryable(nil) || belugamemory.Retryable(errors.New("another")) || !belugamemory.Retryable(distlock.ErrUnavailable) {
		t.Error("wrong for plain errors")
	}
}

// Beluga calls the methods of a typed nil in a goroutine without a recover, which ends the process.
func TestErrors_nilMessagesAndChangedIDs_sayWhatIsWrong(t *testing.T) {
	t.Parallel()
	q, nilMessage := schema.NewHumanMessage("q"), (*schema.HumanMessage)(nil)
	changes := func(id string) func(*runtime.Session) { return func(s *runtime.Session) { s.ID = id } }
	for name, test := range map[string]struct {
		input, passed schema.Message // to the agent, by a plugin
		before, after func(*runtime.Session)
		text          string
	}{
		"a nil input":           {input: nilMessage, text: "configuration: distlock: invalid option: a message is a nil *schema.HumanMessage"},
		"a nil of another type": {input: (*schema.AIMessage)(nil), text: "nil *schema.AIMessage"},
		"a nil of a plugin":     {passed: nilMessage, text: "BeforeTurn of a plugin: distlock: invalid option: a message is a nil *schema.HumanMessage"},
		"an ID changed before":  {before: changes("another"), text: "a plugin has changed the ID"},
		"an ID changed after":   {after: changes("another"), text: "a plugin has changed the ID"},
		"an ID removed after":   {after: changes(""), text: "a plugin has changed the ID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.input == nil {
				test.input = q
			}
			plugin := &hooks{
				before: func(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
					if test.before != nil {
						test.before(s)
					}
					if test.passed != nil {
						input = test.passed
					}
					return input, nil
				},
				after: func(_ context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
					if test.after != nil {
						test.after(s)
					}
					return events, nil
				},
			}
			r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: "wrong " + name, Plugins: []runtime.Plugin{plugin}})
			_, err := run(t, t.Context(), r, "s", test.input)
			refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want the text %q", err, test.text)
			}
			if got := said(t, r, "s"); got != "" && got != "no session" {
				t.Errorf("the session has %s", got)
			}
		})
	}
	r := newRunner(t, answers(echo), "mem://", belugarunner.Options{Namespace: t.Name()})
	_, asked := say(t, t.Context(), r, "", "q")
	_, got := r.Sessions().Get(t.Context(), "")
	for _, err := range []error{asked, got, r.Sessions().Delete(t.Context(), ""), r.Sessions().Update(t.Context(), &runtime.Session{})} {
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
		if err == nil || !strings.Contains(err.Error(), "session ID is empty") {
			t.Errorf("%v does not say that the ID is empty", err)
		}
	}
}
