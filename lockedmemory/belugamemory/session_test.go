package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/memory/stores/inmemory"
	"github.com/lookatitude/beluga-ai/v2/schema"

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
		{"", "a%3As", "a%253As"},
		{"a", "100%", "a:100%25"},
		{"%", ":", "%25:%3A"},
		{"", "%25", "%2525"},
		{"", "%", "%25"},
		{"", ":", "%3A"},
		{"", "a:", "a%3A"},
		{"a", " ", "a: "},
		{"A", "S", "A:S"},
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

// A session that cannot be a key is refused, and the error does not show it.
func TestSessionKey_invalidSession_refused(t *testing.T) {
	m := open(t, "mem://", nil)
	for _, id := range []string{"S3CRET\n", "S3CRET\xff", strings.Repeat("S3CRET", 1000)} {
		for operation, err := range everyOperation(core.WithSessionID(t.Context(), id), m) {
			if operation == "Load" || operation == "Search" {
				continue // they take no lock, and find nothing
			}
			mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidKey)
			if err != nil && strings.Contains(err.Error(), "S3CRET") {
				t.Errorf("%s: %v", operation, err)
			}
		}
	}
}

// A memory of one conversation has one lock for all tenants.
func TestWrap_S1_fixedKey_isOneLockForAllTenants(t *testing.T) {
	locker := localLocker(t, nil)
	m, err := Wrap(memory.NewRecall(inmemory.NewMessageStore()), locker, lockedmemory.FixedKey("a:b"),
		&lockedmemory.Options{Wait: time.Second})
	must(t, err)
	hold(t, core.WithTenant(inSession(t, "1"), "a"), m)
	ctx := core.WithTenant(inSession(t, "2"), "b")
	if err := m.Save(ctx, schema.NewHumanMessage("q"), schema.NewAIMessage("a")); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Errorf("another tenant: %v", err)
	}
}

func TestSessionKey_tenantsStayApart(t *testing.T) {
	url := sharedURL(t)
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
				if got, want := history(t, ctx, m), fmt.Sprintf("q of %s|a of %[1]s", tenant); got != want {
					t.Errorf("tenant %q has %q", tenant, got)
				}
			}
			release := hold(t, contexts["a"], m)
			save(t, contexts["b"], m, "between") // the lock is a's own
			release()
			must(t, m.Clear(contexts["a"]))
			if got := history(t, contexts["b"], m); got != "q of b|a of b|q between|a between" {
				t.Errorf("after a's Clear, b has %q", got)
			}
		})
	}
}
