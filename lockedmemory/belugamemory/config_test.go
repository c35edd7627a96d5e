package belugamemory

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
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
		if got := history(t, ctx, m); got != "q 2|a 2|q 3|a 3" {
			t.Errorf("Load: %s", got)
		}
		if all, err := m.Search(ctx, "1", 10); err != nil || len(all) == 0 {
			t.Errorf("Search finds a message outside of the window: %v, %v", all, err)
		}
	})
	each(t, sharedURL(t), map[string]any{"max_exchanges": 2}, map[string]any{"max_exchanges": 2.0},
		func(t *testing.T, m *Memory) {
			ctx := inSession(t, t.Name())
			save(t, ctx, m, "1", "2", "3")
			if got := history(t, ctx, m); got != "q 2|a 2|q 3|a 3" {
				t.Errorf("Load: %s", got)
			}
		})
}

func TestNew_idleTTL(t *testing.T) {
	url := sharedURL(t)
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
	url := sharedURL(t)
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
	if got := history(t, inSession(t, "s"), plain); got != "" {
		t.Errorf("another namespace sees %q", got)
	}
}

func TestNew_busyRefusesAtOnceOrWaits(t *testing.T) {
	for value, refuses := range map[string]bool{"refuse": true, "queue": false} {
		opts := map[string]any{"busy": value}
		each(t, "mem://", opts, opts, func(t *testing.T, m *Memory) {
			ctx := inSession(t, "s")
			release := hold(t, ctx, m)
			ended := make(chan error, 1)
			go func() { ended <- m.Turn(ctx, func(context.Context) error { return nil }) }()
			select {
			case err := <-ended:
				var busy *distlock.BusyError
				if !refuses || !errors.As(err, &busy) || busy.Holder == "" {
					t.Errorf("Turn: %v", err)
				}
				mustHaveCode(t, err, core.ErrTimeout, distlock.ErrNotAcquired)
				return
			case <-time.After(200 * time.Millisecond):
			}
			if refuses {
				t.Error("the Turn waits")
			}
			release()
			if err := <-ended; err != nil && !refuses {
				t.Errorf("Turn: %v", err)
			}
		})
	}
}

func TestNew_sessionID(t *testing.T) {
	opts := map[string]any{"session_id": "one"}
	each(t, "mem://", opts, opts, func(t *testing.T, m *Memory) {
		save(t, t.Context(), m, "1")
		save(t, inSession(t, "two"), m, "2")
		if got := history(t, t.Context(), m); got != "q 1|a 1|q 2|a 2" {
			t.Errorf("Load: %s", got)
		}
		if got := history(t, inSession(t, "one"), mem(t, nil)); got != "q 1|a 1|q 2|a 2" {
			t.Errorf("a memory of all sessions: %s", got)
		}
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
