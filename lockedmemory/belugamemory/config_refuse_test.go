package belugamemory

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/tracing"
)

// wrongValues lists values that the option refuses.
var wrongValues = map[string][]any{
	"busy":          {"", "Queue", "no", true, 1, []any{"queue"}, map[string]any{}},
	"idle_ttl":      {"", "1", 3600, 3600.0, time.Duration(0), "0s", "-1s", "999ms", "1s1ns", "87601h", "1 hour", true},
	"max_exchanges": {"", "3", -1, 0.5, 1e10, int64(1_000_000_001), true, math.NaN(), json.Number("x")},
	"max_hold":      {"", "0", "0s", "-1s", 600, 600.0, true},
	"namespace":     {"", "a{b", "a}b", "a\nb", "a\xffb", strings.Repeat("n", 121), 1, true},
	"observer":      {"", 1, tracing.Tracing{}},
	"session_id":    {"", "a\xffb", 1, true},
	"store":         {"", 1, true, "redlock+redis://a,b,c", func() {}},
	"ttl":           {"", "0s", "99ms", "-1s", 30, 30.0, "30", time.Nanosecond, true},
	"wait":          {"", "0s", time.Duration(0), 5, 5.0, true},
	"window":        {"", "3", -1, 1.5, true},
}

func TestNew_refusesWrongValues(t *testing.T) {
	if !slices.Equal(slices.Sorted(maps.Keys(wrongValues)), strings.Split(optionNames(), ", ")) {
		t.Errorf("wrong values of %v, options are %s", slices.Sorted(maps.Keys(wrongValues)), optionNames())
	}
	for name, values := range wrongValues {
		for _, value := range values {
			text := refused(t, config.ProviderConfig{BaseURL: "mem://", Options: map[string]any{name: value}})
			// A range is named by the field of Go, such as IdleTTL.
			if !strings.Contains(strings.ToLower(text), strings.ReplaceAll(name, "_", "")) && !strings.Contains(text, `option "`+name+`"`) {
				t.Errorf("%s: %#v: %s", name, value, text)
			}
		}
	}
}

func TestNew_refusesUnknownOptions(t *testing.T) {
	text := refused(t, config.ProviderConfig{BaseURL: "mem://", Options: map[string]any{"tll": "30s"}})
	contains(t, text, `"tll"`, "docs/reference/beluga.md")
	refused(t, config.ProviderConfig{BaseURL: "mem://", Options: map[string]any{"none": nil}})
}

func TestNew_refusesWrongFields(t *testing.T) {
	for url, parts := range map[string][]string{
		"":                            {"base_url", "redis://", "mem://"},
		"http://localhost":            {"base_url", `"http"`, "redis+sentinel://"},
		"localhost:6379":              {"base_url", "scheme", "redis://"},
		"redis://localhost:99999":     {"base_url", "port"},
		"redis://localhost?no_such=1": {"base_url", "no_such"},
		"mem://x":                     {"base_url", "mem://"},
	} {
		contains(t, refused(t, config.ProviderConfig{BaseURL: url}), parts...)
	}
	contains(t, refused(t, config.ProviderConfig{BaseURL: "mem://", APIKey: "SECRET"}), "api_key", "base_url")
	contains(t, refused(t, config.ProviderConfig{BaseURL: "mem://", Timeout: -time.Second}), "timeout", "-1s", "5s")
}

func TestNew_errorsShowNothingPrivate(t *testing.T) {
	const secret = "S3CRET"
	dead := servers.StartRedis(t)
	dead.Kill()
	locked := servers.StartRedis(t, "--requirepass", "other")
	for name, cfg := range map[string]config.ProviderConfig{
		"session_id":           {BaseURL: "mem://", Options: map[string]any{"session_id": []any{secret}}},
		"session_id, no UTF-8": {BaseURL: "mem://", Options: map[string]any{"session_id": secret + "\xff"}},
		"busy":                 {BaseURL: "mem://", Options: map[string]any{"busy": secret}},
		"URL":                  {BaseURL: "redis://u:" + secret + "@localhost:x"},
		"URL, no server":       {BaseURL: "redis://u:" + secret + "@" + dead.Addr(), Timeout: time.Second},
		"URL, wrong password":  {BaseURL: "redis://u:" + secret + "@" + locked.Addr(), Timeout: time.Second},
		"URL, scheme":          {BaseURL: secret + ":" + secret + "@localhost"},
		"URL, parameter":       {BaseURL: "redis://localhost?password=" + secret},
		"store":                {BaseURL: "mem://", Options: map[string]any{"store": []any{secret}}},
		"store, scheme":        {BaseURL: "mem://", Options: map[string]any{"store": secret + ":" + secret + "@localhost"}},
		"store, no server": {BaseURL: "mem://", Timeout: time.Second,
			Options: map[string]any{"store": "redis://u:" + secret + "@" + dead.Addr()}},
		"API key": {BaseURL: "mem://", APIKey: secret},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := New(cfg)
			if err == nil {
				t.Fatal("no error", m)
			}
			for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err)} {
				if strings.Contains(text, secret) {
					t.Errorf("it shows: %s", text)
				}
			}
			if name == "URL, wrong password" &&
				(!strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "no answer")) {
				t.Errorf("it does not help: %v", err)
			}
		})
	}
}

func TestNew_noAnswer_isDown(t *testing.T) {
	dead, hung := servers.StartRedis(t), servers.StartRedis(t)
	other := open(t, sharedURL(t), nil)
	dead.Kill()
	hung.Pause()
	defer hung.Resume()
	for url, text := range map[string]string{
		dead.URL(): "connection refused",
		hung.URL(): "no answer within the timeout",
		"redis+sentinel://" + dead.Addr() + "?master_name=m": "connection refused",
		"redis+cluster://" + hung.Addr():                     "no answer within the timeout",
		"rediss://" + hung.Addr():                            "no answer within the timeout",
	} {
		name, _, _ := strings.Cut(url, ":")
		t.Run(name+" "+text, func(t *testing.T) {
			const timeout = 1500 * time.Millisecond
			began := time.Now()
			_, err := New(config.ProviderConfig{BaseURL: url, Timeout: timeout})
			if took := time.Since(began); took > timeout+2*time.Second {
				t.Errorf("it took %s", took)
			}
			mustHaveCode(t, err, core.ErrProviderDown, distlock.ErrUnavailable)
			if !core.IsRetryable(err) {
				t.Errorf("%v is not retryable", err)
			}
			contains(t, fmt.Sprint(err), "base_url", text)
		})
	}
	save(t, inSession(t, "s"), other, "1")
	if got := history(t, inSession(t, "s"), other); got != "q 1|a 1" {
		t.Errorf("the memory on another server has %q", got)
	}
}
