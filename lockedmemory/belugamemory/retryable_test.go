package belugamemory

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

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
