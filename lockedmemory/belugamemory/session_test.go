package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/migrated"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

func sessionKey(t testing.TB, tenant, session string) string {
	t.Helper()
	key, err := SessionKey(core.WithTenant(core.WithSessionID(context.Background(), session), core.TenantID(tenant)))
	must(t, err)
	return key
}

// Redis stores the keys: after a change of their form, an upgraded application loses its sessions.
func TestSessionKey_format(t *testing.T) {
	for _, test := range []struct{ tenant, session, want string }{
		{"", "s", "s"},
		{"a", "s", "a:s"},
		{"a", "b:c", "a:b%3Ac"},
		{"a:b", "c", "a%3Ab:c"},
		{"", "a:s", "a%3As"},
		{"a", "100% ", "a:100%25 "},
		{"%", ":", "%25:%3A"},
		{"ü", "語", "ü:語"},
	} {
		if key := sessionKey(t, test.tenant, test.session); key != test.want {
			t.Errorf("tenant %q, session %q: %q, want %q", test.tenant, test.session, key, test.want)
		}
	}
}

func TestSessionKey_isUnique(t *testing.T) {
	// IDs with the characters of the escapes, so that escaped and unescaped texts can collide.
	texts := []string{""}
	for i := 0; len(texts[i]) < 3; i++ {
		for _, c := range "%:235A" {
			texts = append(texts, texts[i]+string(c))
		}
	}
	seen := make(map[string][2]string)
	for _, tenant := range texts {
		for _, session := range texts[1:] {
			key := sessionKey(t, tenant, session)
			if before, ok := seen[key]; ok {
				t.Fatalf("tenant and session %q and %q have one key, %q", before, [2]string{tenant, session}, key)
			}
			seen[key] = [2]string{tenant, session}
		}
	}
}

func TestSessionKey_noSession_noLock(t *testing.T) {
	m := open(t, "mem://", nil)
	for name, ctx := range map[string]context.Context{
		"no session":    t.Context(),
		"empty session": core.WithSessionID(t.Context(), ""),
		"tenant alone":  core.WithTenant(t.Context(), "a"),
	} {
		for operation, err := range everyOperation(ctx, m) {
			mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
			if err == nil || core.IsRetryable(err) || !strings.Contains(err.Error(), "core.WithSessionID") {
				t.Errorf("%s, %s: %v", name, operation, err)
			}
		}
		if err := m.Turn(ctx, func(context.Context) error { t.Error("the Turn's function ran"); return nil }); err == nil {
			t.Errorf("%s: Turn has no error", name)
		}
	}
}

func TestSessionKey_tenantsStayApart(t *testing.T) {
	url := migrated.EmptyRedis(t)
	for name, opts := range map[string]map[string]any{
		"session of the context": {"wait": "5s"},
		"session_id":             {"session_id": "s", "namespace": "n", "wait": "5s"},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, url, opts)
			contexts := map[string]context.Context{"": inSession(t, "s")}
			for _, tenant := range []string{"a", "b"} {
				contexts[tenant] = core.WithTenant(inSession(t, "s"), core.TenantID(tenant))
			}
			for tenant, ctx := range contexts {
				save(t, ctx, m, "of "+tenant)
			}
			for tenant, ctx := range contexts {
				holds(t, ctx, m, fmt.Sprintf("q of %s|a of %[1]s", tenant))
			}
			release := hold(t, contexts["a"], m)
			save(t, contexts["b"], m, "between") // the lock is a's own
			release()
			must(t, m.Clear(contexts["a"]))
			holds(t, contexts["b"], m, "q of b|a of b|q between|a between")
		})
	}
}

func recall() memory.Memory { return memory.NewRecall(&list{}) }

func TestWrap_optionsHaveTheirEffect(t *testing.T) {
	ctx, own := inSession(t, "s"), errors.New("no user")
	m := wrap(t, recall(), func(ctx context.Context) (string, error) {
		if id := core.GetSessionID(ctx); id != "" {
			return "user-" + id, nil
		}
		return "", own
	}, &lockedmemory.Options{Busy: lockedmemory.Refuse})
	must(t, m.Turn(ctx, func(ctx context.Context) error {
		if _, ok := m.Locker().FromContext(ctx, "user-s"); !ok {
			t.Error("the lock has another key")
		}
		return nil
	}))
	err := m.Clear(t.Context())
	mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
	if !errors.Is(err, own) {
		t.Error("the KeyFunc's own error is not there:", err)
	}
	hold(t, ctx, m)
	err = m.Turn(ctx, func(context.Context) error { return errors.New("it ran") })
	mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
}

// A caller has to say how the memory keeps sessions apart: a session must not get the history of another.
func TestWrap_refusesWrongOptions(t *testing.T) {
	locker, key := localLocker(t, nil), lockedmemory.FixedKey("s")
	for text, test := range map[string]struct {
		inner  memory.Memory
		locker *distlock.Locker
		key    lockedmemory.KeyFunc
		busy   lockedmemory.BusyPolicy
	}{
		"memory is nil:": {nil, locker, key, 0},
		"memory is nil":  {(*memory.Recall)(nil), locker, key, 0},
		"Locker is nil":  {recall(), nil, key, 0},
		"FixedKey":       {recall(), locker, nil, 0},
		"Busy":           {recall(), locker, key, 7},
	} {
		_, err := Wrap(test.inner, test.locker, test.key, &lockedmemory.Options{Busy: test.busy})
		mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
		contains(t, fmt.Sprint(err), text)
	}
}
