package belugamemory

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"

	"github.com/belugalock/belugalock/distlock"
)

// A session must not get the history of another tenant.
func TestInner_sharedBySessions_isRefused(t *testing.T) {
	locker := localLocker(t, nil)
	byName := func(opts map[string]any) (memory.Memory, error) {
		m, err := New(config.ProviderConfig{BaseURL: "mem://", Options: opts})
		if err == nil {
			closeLater(t, m)
		}
		return m, err
	}
	applied := func(opts ...Option) (memory.Memory, error) {
		m, err := Middleware(locker, opts...)
		if err != nil {
			return nil, err
		}
		return memory.ApplyMiddleware(recall(), m), nil
	}
	for name, test := range map[string]struct {
		text     []string
		shared   func() (memory.Memory, error)
		separate func() (memory.Memory, error)
	}{
		"New": {[]string{`"inner"`, `"session_id"`, `"inner_separates_sessions"`},
			func() (memory.Memory, error) { return byName(map[string]any{"inner": "inmemory"}) },
			func() (memory.Memory, error) {
				return byName(map[string]any{"inner": "inmemory", "inner_separates_sessions": true})
			}},
		"Wrap": {[]string{"WithSessionID", "WithInnerSeparatesSessions"},
			func() (memory.Memory, error) { return Wrap(recall(), locker) },
			func() (memory.Memory, error) { return Wrap(recall(), locker, WithInnerSeparatesSessions()) }},
		"Middleware": {[]string{"WithSessionID", "WithInnerSeparatesSessions"},
			func() (memory.Memory, error) { return applied() },
			func() (memory.Memory, error) { return applied(WithInnerSeparatesSessions()) }},
		"WithKey": {[]string{"WithSessionID", "WithInnerSeparatesSessions"},
			func() (memory.Memory, error) { return Wrap(recall(), locker, WithKey(SessionKey)) },
			func() (memory.Memory, error) { return applied(WithKey(SessionKey), WithInnerSeparatesSessions()) }},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := test.shared(); err == nil {
				save(t, core.WithTenant(inSession(t, "s"), "a"), m, "of a")
				t.Errorf("tenant b reads %q", history(t, core.WithTenant(inSession(t, "s"), "b"), m))
			} else {
				mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
				for _, part := range test.text {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("no %s in: %v", part, err)
					}
				}
			}
			if _, err := test.separate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInner_inTheProcess_warnsOnce(t *testing.T) {
	var logged strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	warnOfProcess = sync.Once{}
	memory.Register("elsewhere", func(config.ProviderConfig) (memory.Memory, error) { return failing{}, nil })
	url := sharedURL(t)
	for _, step := range []struct {
		url, inner string
		warnings   int
	}{{"mem://", "inmemory", 0}, {url, "elsewhere", 0}, {url, "inmemory", 1}, {url, "inmemory", 1}} {
		open(t, step.url, map[string]any{"inner": step.inner, "session_id": "S3CRET"})
		if strings.Count(logged.String(), "other instances do not see") != step.warnings ||
			strings.Contains(logged.String(), "S3CRET") {
			t.Errorf("%s on %s: want %d warnings, logged is %q", step.inner, step.url, step.warnings, logged.String())
		}
	}
}
