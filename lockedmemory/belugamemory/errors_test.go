package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

type coded struct {
	sentinel  error
	code      core.ErrorCode // of a Save
	retryable bool
}

// sentinels are those of codes.All, by the names that its source has for them.
var sentinels = func() map[string]coded {
	source, err := os.ReadFile("internal/codes/codes.go")
	if err != nil {
		panic(err)
	}
	rows := regexp.MustCompile(`(?m)^\t\{(\w+\.Err\w+), `).FindAllStringSubmatch(string(source), -1)
	found := make(map[string]coded)
	for i, c := range codes.All {
		if name := rows[i][1]; name != "driver.ErrRights" { // of another error, as a part
			found[name] = coded{c.Sentinel, c.Code, core.IsRetryable(core.NewError("", c.Code, "", nil))}
		}
	}
	return found
}()

// saved returns the error of a Save whose inner memory fails.
func saved(t *testing.T, err error) error {
	t.Helper()
	return ofOne(t, failing{err}).Save(t.Context(), schema.NewHumanMessage("q"), schema.NewAIMessage("a"))
}

func TestErrors_everySentinelHasItsCode(t *testing.T) {
	for name, want := range sentinels {
		t.Run(name, func(t *testing.T) {
			for how, err := range map[string]error{
				"plain":               want.sentinel,
				"wrapped":             fmt.Errorf("deep: %w", fmt.Errorf("deeper: %w", want.sentinel)),
				"joined":              errors.Join(errors.New("other"), want.sentinel),
				"joined with timeout": fmt.Errorf("%w: %w", want.sentinel, context.DeadlineExceeded),
			} {
				got := saved(t, err)
				mustHaveCode(t, got, want.code, want.sentinel)
				if core.IsRetryable(got) != want.retryable {
					t.Errorf("%s: retryable %t: %v", how, !want.retryable, got)
				}
				if errors.Is(err, context.DeadlineExceeded) && !errors.Is(got, context.DeadlineExceeded) {
					t.Errorf("%s: the context's error is hidden: %v", how, got)
				}
			}
		})
	}
}

// A message that is never answered decides the code, whatever else the error says.
func TestErrors_O_stopped_decides(t *testing.T) {
	for _, closed := range []error{lockedmemory.ErrStopped, lockedmemory.ErrSuperseded} {
		for _, other := range sentinels {
			mustHaveCode(t, saved(t, fmt.Errorf("%w: %w", other.sentinel, closed)), ErrInterrupted, closed)
		}
	}
}

// An error of a cancelled caller is not retryable. An invalid input stays an invalid input.
func TestErrors_cancelledCaller_notRetryable(t *testing.T) {
	for name, want := range sentinels {
		err := fmt.Errorf("%w: %w", want.sentinel, context.Canceled)
		got := saved(t, err)
		if core.IsRetryable(got) || !errors.Is(got, context.Canceled) || want.retryable && got != err {
			t.Errorf("%s: %v", name, got)
		}
		if !want.retryable {
			mustHaveCode(t, got, want.code, want.sentinel)
		}
	}
}

// Every new sentinel needs a code.
func TestErrors_everySentinelIsListed(t *testing.T) {
	sentinel := regexp.MustCompile(`(?m)^(?:var |\t)(Err[A-Z]\w*)(?: error)? += `)
	for name, dir := range map[string]string{"distlock": "../../distlock", "sessionstore": "../sessionstore", "lockedmemory": ".."} {
		files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		found := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			must(t, err)
			for _, match := range sentinel.FindAllStringSubmatch(string(text), -1) {
				found++
				if _, ok := sentinels[name+"."+match[1]]; !ok {
					t.Errorf("%s.%s has no row in codes.All", name, match[1])
				}
			}
		}
		if found == 0 {
			t.Errorf("no sentinels found in %s", dir)
		}
	}
}

// A missing right is an ErrAuth, which is not retryable. This includes the rights of the lock.
func TestErrors_C_refusal_code(t *testing.T) {
	right := fmt.Errorf("%w: %w", distlock.ErrRefused, driver.ErrRights)
	for name, c := range map[string]struct {
		err  error
		code core.ErrorCode
	}{
		"right":                   {right, core.ErrAuth},
		"memory":                  {fmt.Errorf("%w: %w", distlock.ErrRefused, driver.ErrRefused), core.ErrProviderDown},
		"data of another program": {fmt.Errorf("%w: %w", distlock.ErrRefused, driver.ErrForeign), core.ErrProviderDown},
		"outage":                  {fmt.Errorf("%w: %w", distlock.ErrUnavailable, driver.ErrTemporary), core.ErrProviderDown},
		"right, after a loss": {
			fmt.Errorf("%w: %w: %w", distlock.ErrOutcomeUnknown, driver.ErrReplayed, driver.ErrRights), ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			err := saved(t, c.err)
			mustHaveCode(t, err, c.code, c.err)
			if core.IsRetryable(err) != (c.code == core.ErrProviderDown) {
				t.Errorf("retryable: %t: %v", core.IsRetryable(err), err)
			}
		})
	}
}

func TestErrors_staleWriter_leaseLost(t *testing.T) {
	stale := &sessionstore.StaleError{Fence: 1, MarkToken: 2}
	err := saved(t, fmt.Errorf("append: %w", stale))
	mustHaveCode(t, err, ErrLockLost, distlock.ErrLost)
	var found *sessionstore.StaleError
	if !errors.As(err, &found) || found != stale {
		t.Error("errors.As does not find it:", err)
	}
	// A loss decides the code: a lost lease does not come back.
	err = saved(t, fmt.Errorf("%w: %w", stale, distlock.ErrUnavailable))
	mustHaveCode(t, err, ErrLockLost, distlock.ErrLost)
}

func TestErrors_foreign_unchanged(t *testing.T) {
	for name, own := range map[string]error{
		"plain":     errors.New("disk full"),
		"core":      core.NewError("disk.append", core.ErrRateLimit, "slow down", nil),
		"cancelled": context.Canceled,
		"deadline":  context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			m := ofOne(t, failing{own})
			for operation, err := range everyOperation(t.Context(), m) {
				if operation != "Turn" && err != own {
					t.Errorf("%s: %v", operation, err)
				}
			}
			if err := m.Turn(t.Context(), func(context.Context) error { return own }); err != own {
				t.Errorf("Turn: %v", err)
			}
		})
	}
	// The function may also return sentinels.
	m := ofOne(t, failing{})
	for _, want := range sentinels {
		if err := m.Turn(t.Context(), func(context.Context) error { return want.sentinel }); err != want.sentinel {
			t.Errorf("Turn: %v, want %v itself", err, want.sentinel)
		}
	}
}

func TestErrors_failedTurnAndLoss_bothReturned(t *testing.T) {
	locker := localLocker(t, &distlock.Options{TTL: 200 * time.Millisecond, MaxHold: 100 * time.Millisecond})
	m, err := Wrap(failing{}, locker, lockedmemory.FixedKey("s"), nil)
	must(t, err)
	own := core.NewError("agent.run", core.ErrRateLimit, "slow down", nil)
	err = m.Turn(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return own
	})
	mustHaveCode(t, err, ErrLockLost, distlock.ErrLost)
	var found *core.Error
	if core.IsRetryable(err) || !errors.As(err, &found) || found.Op != "belugamemory.turn" {
		t.Error("the loss does not decide:", err)
	}
	if !errors.Is(err, error(own)) || !strings.Contains(err.Error(), own.Error()) {
		t.Error("the function's error is not there:", err)
	}
}

// Work that returns the cause of its context's end has failed by the loss, not by an error of its own.
func TestErrors_causeOfALoss_hasItsCode(t *testing.T) {
	locker := localLocker(t, &distlock.Options{TTL: 200 * time.Millisecond, MaxHold: 100 * time.Millisecond})
	m, err := Wrap(failing{}, locker, lockedmemory.FixedKey("s"), nil)
	must(t, err)
	err = m.Turn(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	mustHaveCode(t, err, ErrLockLost, distlock.ErrLost)
}

// After a lost reply, only a call with an ID is retryable.
func TestRetryable_lostReply_onlyWithAnID(t *testing.T) {
	server := servers.StartRedis(t)
	q, a := schema.NewHumanMessage("q"), schema.NewAIMessage("a")
	for name, call := range map[string]func(ctx context.Context, m *Memory, pause func()) error{
		"Save":   func(ctx context.Context, m *Memory, pause func()) error { pause(); return m.Save(ctx, q, a) },
		"Append": func(ctx context.Context, m *Memory, pause func()) error { pause(); return m.Append(ctx, q, a) },
		"Clear":  func(ctx context.Context, m *Memory, pause func()) error { pause(); return m.Clear(ctx) },
		"SaveOnce": func(ctx context.Context, m *Memory, pause func()) error {
			pause()
			return m.SaveOnce(ctx, "id", q, a)
		},
		"Answer": func(ctx context.Context, m *Memory, pause func()) error {
			_, err := m.Answer(ctx, "id", q, func(context.Context) ([]schema.Message, error) {
				pause()
				return []schema.Message{a}, nil
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, server.URL(), map[string]any{"namespace": name})
			_ = m.Turn(inSession(t, "s"), func(ctx context.Context) error {
				save(t, ctx, m, "1")
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				defer server.Resume()
				unknown(t, call(ctx, m, server.Pause), name == "Answer" || name == "SaveOnce")
				return nil
			})
		})
	}
	m := ofOne(t, lossy{})
	unknown(t, m.Delete(t.Context()), false)
	unknown(t, m.Replace(t.Context(), lockedmemory.Place{}, lockedmemory.Place{}), false)
}

// A repetition would wait for itself again.
func TestRetryable_selfWait_isNot(t *testing.T) {
	m := ofOne(t, failing{})
	must(t, m.Turn(t.Context(), func(ctx context.Context) error {
		_, err := m.Locker().Acquire(ctx, "s")
		if !errors.Is(err, distlock.ErrNotAcquired) || Retryable(err) {
			t.Errorf("Retryable is %t: %v", Retryable(err), err)
		}
		return nil
	}))
}

func unknown(t *testing.T, err error, retryable bool) {
	t.Helper()
	code := ErrOutcomeUnknown
	if retryable {
		code = core.ErrProviderDown
	}
	mustHaveCode(t, err, code, distlock.ErrOutcomeUnknown)
	if Retryable(err) != retryable {
		t.Errorf("Retryable is %t: %v", !retryable, err)
	}
}

// lossy loses the replies to Delete and Replace.
type lossy struct {
	*sessionstore.Store[schema.Message, schema.Document]
}

func (lossy) AcceptsLocker(*distlock.Locker) error { return nil }

func (lossy) Delete(context.Context) error { return distlock.ErrOutcomeUnknown }

func (lossy) Replace(context.Context, lockedmemory.Place, lockedmemory.Place, ...lockedmemory.Exchange[schema.Message]) error {
	return distlock.ErrOutcomeUnknown
}
