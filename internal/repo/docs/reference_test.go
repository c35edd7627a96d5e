package docs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	storedriver "github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/tracing"
)

func TestGuide_distlockOptions(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(t.Context())
	inForce := locker.Options()
	var want [][]string
	for _, field := range reflect.VisibleFields(reflect.TypeOf(inForce)) {
		value := reflect.ValueOf(inForce).FieldByIndex(field.Index)
		if field.Type.Kind() == reflect.Struct {
			for _, inner := range reflect.VisibleFields(field.Type) {
				want = append(want, []string{field.Name + "." + inner.Name, shown(value.FieldByIndex(inner.Index))})
			}
			continue
		}
		text := shown(value)
		host, _ := os.Hostname()
		switch {
		case field.Name == "RenewEvery" && inForce.RenewEvery == inForce.TTL/3:
			text = "TTL/3"
		case field.Name == "Holder" && text == fmt.Sprintf("%s:%d", host, os.Getpid()):
			text = "host:pid"
		case field.Name == "Observer": // one that does nothing stands in for nobody
			text = "none"
		case field.Name == "Logger" && inForce.Logger == slog.Default():
			text = "slog.Default()"
		}
		want = append(want, []string{field.Name, text})
	}
	sameRows(t, "### distlock.Options", want)
}

func TestGuide_limitsOfDistlockOptions(t *testing.T) {
	const ms = time.Millisecond
	takesLimits(t, "### distlock.Options", func(o *distlock.Options) error { _, err := memlock.New(o); return err }, []limit[distlock.Options]{
		{"At most 128 bytes", "Namespace", distlock.Options{Namespace: strings.Repeat("n", 128)}, distlock.Options{Namespace: strings.Repeat("n", 129)}},
		{"no braces", "Namespace", distlock.Options{Namespace: "n"}, distlock.Options{Namespace: "n}"}},
		{"At least 100 ms", "TTL", distlock.Options{TTL: 100 * ms}, distlock.Options{TTL: 99 * ms}},
		{"At least 1 ms", "Retry.Min", distlock.Options{Retry: distlock.Retry{Min: ms}}, distlock.Options{Retry: distlock.Retry{Min: ms - 1}}},
		{"not below `Retry.Min`", "Retry.Max", distlock.Options{Retry: distlock.Retry{Min: ms, Max: ms}}, distlock.Options{Retry: distlock.Retry{Min: 2 * ms, Max: ms}}},
		{"At least 10 ms", "RenewEvery", distlock.Options{RenewEvery: 10 * ms}, distlock.Options{RenewEvery: 9 * ms}},
		{"(92 ms of 100 ms)", "RenewEvery", distlock.Options{RenewEvery: 91 * ms, TTL: 100 * ms}, distlock.Options{RenewEvery: 92 * ms, TTL: 100 * ms}},
		{"Not negative", "MaxHold", distlock.Options{MaxHold: 1}, distlock.Options{MaxHold: -1}},
		{"At most 256 bytes", "Holder", distlock.Options{Holder: strings.Repeat("h", 256)}, distlock.Options{Holder: strings.Repeat("h", 257)}},
	})
}

func TestGuide_lockedmemoryOptions(t *testing.T) {
	var want [][]string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lockedmemory.Options]()) {
		text := shown(reflect.Zero(field.Type))
		if field.Name == "Busy" && lockedmemory.Wait == 0 {
			text = "Wait"
		}
		want = append(want, []string{field.Name, text})
	}
	sameRows(t, "### lockedmemory.Options", want)
}

func TestGuide_sessionstoreOptions(t *testing.T) {
	t.Parallel()
	var settings storedriver.Settings
	store, err := newStore(&settings, nil)
	if err != nil {
		t.Fatal(err)
	}
	inForce := map[string]any{"Namespace": settings.Namespace, "IdleTTL": settings.IdleTTL, "MaxTurns": settings.MaxTurns,
		"RememberTurns": settings.Remember}
	var want [][]string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[sessionstore.Options]()) {
		value, ok := inForce[field.Name]
		if !ok {
			value = reflect.Zero(field.Type).Interface()
		}
		text := strings.TrimSuffix(shown(reflect.ValueOf(value)), "0m0s")
		if field.Name == "MaxMessage" {
			text = "8 MiB" // see below
		}
		want = append(want, []string{field.Name, text})
	}
	sameRows(t, "### sessionstore.Options", want)

	memory, err := lockedmemory.New(store, inProcess(t, nil), lockedmemory.FixedKey("session"), nil)
	if err != nil {
		t.Fatal(err)
	}
	const most = 8<<20 - len(`""`)
	if err := memory.Save(t.Context(), strings.Repeat("x", most), ""); err != nil {
		t.Errorf("8 MiB: %v", err)
	}
	if err := memory.Save(t.Context(), strings.Repeat("x", most+1), ""); !errors.Is(err, sessionstore.ErrTooLarge) {
		t.Errorf("more than 8 MiB: %v", err)
	}
}

func TestGuide_limitsOfSessionstoreOptions(t *testing.T) {
	takesLimits(t, "### sessionstore.Options", func(o *sessionstore.Options) error { _, err := newStore(nil, o); return err }, []limit[sessionstore.Options]{
		{"At most 128 bytes", "Namespace", sessionstore.Options{Namespace: strings.Repeat("n", 128)}, sessionstore.Options{Namespace: strings.Repeat("n", 129)}},
		{"no braces", "Namespace", sessionstore.Options{Namespace: "n"}, sessionstore.Options{Namespace: "n}"}},
		{"At least 1 s", "IdleTTL", sessionstore.Options{IdleTTL: time.Second}, sessionstore.Options{IdleTTL: 999 * time.Millisecond}},
		{"At most 256 MiB", "MaxMessage", sessionstore.Options{MaxMessage: 256 << 20}, sessionstore.Options{MaxMessage: 256<<20 + 1}},
		{"At least 1 s", "RememberTurns", sessionstore.Options{RememberTurns: time.Second}, sessionstore.Options{RememberTurns: 999 * time.Millisecond}},
	})
}

// limit is a sentence in the row of an option, with values on both sides of it.
type limit[O any] struct {
	says, field     string
	allowed, beyond O
}

func takesLimits[O any](t *testing.T, heading string, open func(*O) error, limits []limit[O]) {
	t.Helper()
	rows := ReadPage(t, "docs/guide.md").Table(t, heading)
	for _, c := range limits {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == c.field && strings.Contains(row[2], c.says) }) {
			t.Errorf("the row of %s does not say %q", c.field, c.says)
		}
		if err := open(&c.allowed); err != nil {
			t.Errorf("%s, %s: %v", c.field, c.says, err)
		}
		if err := open(&c.beyond); err == nil {
			t.Errorf("%s, %s: more is allowed", c.field, c.says)
		}
	}
}

// newStore is one in memory; settings, if not nil, is where the options in force go.
func newStore(settings *storedriver.Settings, options *sessionstore.Options) (*sessionstore.Store[string, string], error) {
	return sessionstore.New(func(s storedriver.Settings) (storedriver.Driver, error) {
		if settings != nil {
			*settings = s
		}
		return memstore.NewDriver(s), nil
	}, lockedmemory.FixedKey("session"), sessionstore.JSON[string]{}, options)
}

func TestGuide_tracingOptions(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, row := range ReadPage(t, "docs/guide.md").Table(t, "### Options of tracing.New") {
		documented = append(documented, row[0])
		if row[0] != "WithKeyAttribute" {
			continue
		}
		if row[1] != string(tracing.KeyHashed) {
			t.Errorf("the default of WithKeyAttribute is %q", tracing.KeyHashed)
		}
		for _, mode := range []tracing.KeyMode{tracing.KeyHashed, tracing.KeyRaw, tracing.KeyNone} {
			if !strings.Contains(row[2], "`"+string(mode)+"`") {
				t.Errorf("the mode %q is not in the table", mode)
			}
		}
	}
	slices.Sort(documented)
	if names := Options(t, filepath.Join(root, "tracing")); !slices.Equal(names, documented) {
		t.Errorf("tracing has %q, the table %q", names, documented)
	}
}

func TestGuide_lockURLs(t *testing.T) {
	_, err := lockurl.Open(t.Context(), "nowhere://", nil)
	if err == nil {
		t.Fatal("an unknown scheme was accepted")
	}
	_, known, _ := strings.Cut(err.Error(), "write one of ")
	var schemes []string
	for _, row := range ReadPage(t, "docs/guide.md").Table(t, "### URLs of lockurl.Open") {
		locker, err := lockurl.Open(t.Context(), row[0], nil)
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("%s: %v", row[0], err)
		}
		scheme, _, _ := strings.Cut(row[0], "://")
		schemes = append(schemes, scheme+"://")
	}
	if got := strings.Join(schemes, " "); got != known {
		t.Errorf("the table has %s, lockurl knows %s", got, known)
	}
}

// sameRows compares the first two columns of a table, name and default, with those of the code, in order.
func sameRows(t *testing.T, heading string, want [][]string) {
	t.Helper()
	var got [][]string
	for _, row := range ReadPage(t, "docs/guide.md").Table(t, heading) {
		got = append(got, row[:2])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the table has\n%q\nthe code\n%q", heading, got, want)
	}
}

// shown is how a table shows a default.
func shown(value reflect.Value) string {
	switch {
	case value.Kind() == reflect.Bool && !value.Bool():
		return "off"
	case value.IsZero():
		return "none"
	}
	return fmt.Sprint(value.Interface())
}
