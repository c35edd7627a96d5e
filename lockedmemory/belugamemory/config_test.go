package belugamemory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/tracing"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// mem makes a memory in this process with the given options.
func mem(t testing.TB, opts map[string]any) *Memory { return open(t, "mem://", opts) }

func TestNew_optionsOfTheLock(t *testing.T) {
	type values = map[string]any
	for name, test := range map[string]struct {
		native, text values
		check        func(distlock.Options) bool
	}{
		"none": {nil, nil, func(o distlock.Options) bool {
			return o.TTL == 30*time.Second && o.Wait == 35*time.Second && o.MaxHold == 0 && o.Namespace == "distlock"
		}},
		"nothing but null": {values{"ttl": nil, "busy": nil, "observer": nil}, values{"wait": nil, "session_id": nil},
			func(o distlock.Options) bool { return o.TTL == 30*time.Second && o.Wait == 35*time.Second }},
		"ttl": {values{"ttl": 12 * time.Second}, values{"ttl": "12s"},
			func(o distlock.Options) bool { return o.TTL == 12*time.Second }},
		"max_hold": {values{"max_hold": 90 * time.Minute}, values{"max_hold": "1h30m"},
			func(o distlock.Options) bool { return o.MaxHold == 90*time.Minute }},
		"wait": {values{"wait": 7 * time.Second}, values{"wait": "7s"},
			func(o distlock.Options) bool { return o.Wait == 7*time.Second }},
		"wait for ever": {values{"wait": time.Duration(-1)}, values{"wait": "-1s"},
			func(o distlock.Options) bool { return o.Wait < 0 }},
		"interruptible": {values{"interruptible": true}, values{"interruptible": true},
			func(o distlock.Options) bool { return o.Interruptible }},
		"namespace": {values{"namespace": "app-ü"}, values{"namespace": "app-ü"},
			func(o distlock.Options) bool { return o.Namespace == "app-ü" }},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, "mem://", test.native, test.text, func(t *testing.T, m *Memory) {
				if o := fencing.Options(m.Locker()); !test.check(o) {
					t.Errorf("%+v", o)
				}
			})
		})
	}
}

// each calls the test with a memory of the Go values and with a memory of the values from JSON.
func each(t *testing.T, url string, native, text map[string]any, check func(t *testing.T, m *Memory)) {
	t.Run("as Go values", func(t *testing.T) { check(t, open(t, url, native)) })
	t.Run("from JSON", func(t *testing.T) {
		text, err := json.Marshal(text)
		must(t, err)
		var opts map[string]any
		must(t, json.Unmarshal(text, &opts))
		check(t, open(t, url, opts))
	})
}

func TestNew_windowAndMaxExchanges(t *testing.T) {
	each(t, "mem://", map[string]any{"window": int32(2)}, map[string]any{"window": 2}, func(t *testing.T, m *Memory) {
		ctx := inSession(t, "s")
		save(t, ctx, m, "1", "2", "3")
		holds(t, ctx, m, "q 2|a 2|q 3|a 3")
		if all, err := m.Search(ctx, "1", 10); err != nil || len(all) == 0 {
			t.Errorf("Search finds a message outside of the window: %v, %v", all, err)
		}
	})
	each(t, migrated.EmptyRedis(t), map[string]any{"max_exchanges": 2}, map[string]any{"max_exchanges": 2.0},
		func(t *testing.T, m *Memory) {
			ctx := inSession(t, t.Name())
			save(t, ctx, m, "1", "2", "3")
			holds(t, ctx, m, "q 2|a 2|q 3|a 3")
		})
}

func TestNew_idleTTL(t *testing.T) {
	url := migrated.EmptyRedis(t)
	server := servers.SharedServer()
	each(t, url, map[string]any{"idle_ttl": time.Hour}, map[string]any{"idle_ttl": "1h"}, func(t *testing.T, m *Memory) {
		save(t, inSession(t, "s"), m, "1")
		ttl, err := server.Do("TTL", "session:{s}:log")
		if err != nil || !regexp.MustCompile(`^(3600|359\d)$`).MatchString(ttl) {
			t.Errorf("TTL %q, %v", ttl, err)
		}
	})
	save(t, inSession(t, "ever"), open(t, url, nil), "1")
	if ttl, err := server.Do("TTL", "session:{ever}:log"); err != nil || ttl != "-1" {
		t.Errorf("without idle_ttl: %q, %v", ttl, err)
	}
}

func TestNew_namespaceBeginsEveryKey(t *testing.T) {
	url := migrated.EmptyRedis(t)
	server := servers.SharedServer()
	each(t, url, map[string]any{"namespace": "app"}, map[string]any{"namespace": "app"}, func(t *testing.T, m *Memory) {
		ctx := inSession(t, "s")
		save(t, ctx, m, "1")
		must(t, m.Turn(ctx, func(ctx context.Context) error { save(t, ctx, m, "2"); return nil }))
		keys, err := server.Do("KEYS", "*")
		if err != nil || keys == "" {
			t.Fatal(keys, err)
		}
		for key := range strings.Lines(keys) {
			if !strings.HasPrefix(key, "app:") {
				t.Errorf("key %q", key)
			}
		}
		if log, err := server.Do("EXISTS", "app:session:{s}:log"); err != nil || log != "1" {
			t.Errorf("keys %q, %v", keys, err)
		}
	})
	plain := open(t, url, nil)
	holds(t, inSession(t, "s"), plain, "")
}

func TestNew_busyRefusesAtOnceOrWaits(t *testing.T) {
	for value, refuses := range map[string]bool{"refuse": true, "queue": false} {
		opts := map[string]any{"busy": value, "wait": "1s"}
		each(t, "mem://", opts, opts, func(t *testing.T, m *Memory) {
			ctx := inSession(t, "s")
			hold(t, ctx, m)
			start := time.Now()
			err := m.Turn(ctx, func(context.Context) error { return nil })
			mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
			var busy *distlock.BusyError
			if waited := time.Since(start) >= time.Second; waited == refuses || !errors.As(err, &busy) || busy.Holder == "" {
				t.Errorf("the Turn has waited: %t; %v", waited, err)
			}
		})
	}
}

func TestNew_sessionID(t *testing.T) {
	opts := map[string]any{"session_id": "one"}
	each(t, "mem://", opts, opts, func(t *testing.T, m *Memory) {
		save(t, t.Context(), m, "1")
		save(t, inSession(t, "two"), m, "2")
		holds(t, t.Context(), m, "q 1|a 1|q 2|a 2")
		holds(t, inSession(t, "one"), mem(t, nil), "q 1|a 1|q 2|a 2")
	})
}

// report counts the operations of an Observer, by name.
type report struct {
	mu   sync.Mutex
	seen map[string]int
}

func (r *report) Start(ctx context.Context, op *distlock.Operation) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[op.Name]++
	return ctx
}

func (r *report) End(context.Context, *distlock.Operation) {}

// uncomparable is an Observer that is no pointer.
type uncomparable struct {
	*report
	_ []int
}

// Locks and sessions report to the Observer that a memory was given, and to no other.
func TestNew_observer(t *testing.T) {
	seen := &report{seen: map[string]int{}}
	observed, other := mem(t, map[string]any{"observer": seen}), mem(t, nil)
	if observed.Locker() == other.Locker() {
		t.Error("a memory without the Observer has its Locker")
	}
	if mem(t, map[string]any{"observer": seen}).Locker() != observed.Locker() {
		t.Error("a memory with the same Observer has another Locker")
	}
	save(t, inSession(t, "s"), other, "1")
	if len(seen.seen) > 0 {
		t.Errorf("another memory reports %v", seen.seen)
	}
	save(t, inSession(t, "s"), observed, "2")
	if seen.seen["lockedmemory.save"] != 1 || seen.seen["distlock.acquire"] != 1 {
		t.Errorf("reported are %v", seen.seen)
	}
	refused(t, config.ProviderConfig{BaseURL: "mem://", Options: map[string]any{"observer": uncomparable{report: seen}}})
}

// doc.go lists the same options.
func TestNew_optionsAreThoseOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "// # The configuration of ")
	section, _, _ = strings.Cut(section, "\n// # ")
	var documented []string
	for _, line := range regexp.MustCompile(`(?m)^//\t([a-z_, ]+)$`).FindAllStringSubmatch(section, -1) {
		documented = append(documented, strings.TrimSuffix(line[1], ","))
	}
	if got := strings.Join(documented, ", "); got != optionNames() {
		t.Errorf("documented are\n%s, options are\n%s", got, optionNames())
	}
}

// wrongValues lists values that the option refuses.
var wrongValues = map[string][]any{
	"busy":          {"", "Queue", "no", true, 1, []any{"queue"}, map[string]any{}},
	"idle_ttl":      {"", "1", 3600, 3600.0, time.Duration(0), "0s", "-1s", "999ms", "1s1ns", "87601h", "1 hour", true},
	"interruptible": {"", "true", 1, 0.0},
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
	other := open(t, migrated.EmptyRedis(t), nil)
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
	holds(t, inSession(t, "s"), other, "q 1|a 1")
}
