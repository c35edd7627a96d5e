package docs

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

func TestReference_distlockOptions(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(t.Context())
	inForce := fencing.Options(locker)
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
		case field.Name == "Logger": // the Locker's own, in front of the default
			text = "slog.Default()"
		}
		want = append(want, []string{field.Name, text})
	}
	sameRows(t, LockOptions, want)
}

func TestReference_lockedmemoryOptions(t *testing.T) {
	var want [][]string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lockedmemory.Options]()) {
		text := shown(reflect.Zero(field.Type))
		switch {
		case field.Name == "Wait":
			text = shown(reflect.ValueOf(lockedmemory.DefaultWait))
		case field.Name == "Busy" && lockedmemory.Queue == 0:
			text = "Queue"
		}
		want = append(want, []string{field.Name, text})
	}
	sameRows(t, MemoryOptions, want)
}

func TestReference_sessionstoreOptions(t *testing.T) {
	t.Parallel()
	d, err := memstore.NewDriver(nil)
	if err != nil {
		t.Fatal(err)
	}
	var want [][]string
	inForce := reflect.ValueOf(d.Retention())
	for _, field := range reflect.VisibleFields(inForce.Type()) {
		want = append(want, []string{field.Name, strings.TrimSuffix(shown(inForce.FieldByIndex(field.Index)), "0m0s")})
	}
	sameRows(t, RetentionOptions, want)

	want = nil
	for _, field := range reflect.VisibleFields(reflect.TypeFor[sessionstore.Options]()) {
		value := reflect.Zero(field.Type)
		text := shown(value)
		switch field.Name {
		case "MaxMessage":
			text = "8 MiB" // see below
		case "Logger":
			text = "slog.Default()"
		}
		want = append(want, []string{field.Name, text})
	}
	sameRows(t, StoreOptions, want)

	store, err := newStore(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
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

// The row of an option says its limit. There are values on both sides of that.
func TestReference_limitsOfSessionstoreOptions(t *testing.T) {
	const ms = time.Millisecond
	type keep = sessionstore.Retention
	type view = sessionstore.Options
	rows := slices.Concat(RetentionOptions.Table(t), StoreOptions.Table(t))
	for _, c := range []struct {
		says, field     string
		allowed, beyond any
	}{
		{"At most 128 bytes", "Namespace", &keep{Namespace: strings.Repeat("n", 128)}, &keep{Namespace: strings.Repeat("n", 129)}},
		{"no braces", "Namespace", &keep{Namespace: "n"}, &keep{Namespace: "n}"}},
		{"At least 1 s", "IdleTTL", &keep{IdleTTL: time.Second}, &keep{IdleTTL: 999 * ms}},
		{"At most 256 MiB", "MaxMessage", &view{MaxMessage: 256 << 20}, &view{MaxMessage: 256<<20 + 1}},
		{"At least 1 s", "RememberIDs", &keep{RememberIDs: time.Second}, &keep{RememberIDs: 999 * ms}},
	} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == c.field && strings.Contains(row[2], c.says) }) {
			t.Errorf("the row of %s does not say %q", c.field, c.says)
		}
		made := func(options any) error {
			keep, _ := options.(*keep)
			view, _ := options.(*view)
			_, err := newStore(keep, view)
			return err
		}
		if err := made(c.allowed); err != nil {
			t.Errorf("%s, %s: %v", c.field, c.says, err)
		}
		if err := made(c.beyond); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s, %s: more is allowed: %v", c.field, c.says, err)
		}
	}
}

// newStore is one in memory.
func newStore(keep *sessionstore.Retention, view *sessionstore.Options) (*sessionstore.Store[string, string], error) {
	return memstore.New(lockedmemory.FixedKey("session"), sessionstore.JSON[string]{}, keep, view)
}

func TestReference_tracingOptions(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, row := range TracingOptions.Table(t) {
		documented = append(documented, row[0])
		if row[0] != "WithKeyAttribute" {
			continue
		}
		if row[1] != string(distlock.KeyHashed) {
			t.Errorf("the default of WithKeyAttribute is %q", distlock.KeyHashed)
		}
		for _, mode := range []distlock.KeyMode{distlock.KeyHashed, distlock.KeyRaw, distlock.KeyNone} {
			if !strings.Contains(row[2], "`"+string(mode)+"`") {
				t.Errorf("the mode %q is not in the table", mode)
			}
		}
	}
	slices.Sort(documented)
	if names := Options(t, "tracing"); !slices.Equal(names, documented) {
		t.Errorf("tracing has %q, the table %q", names, documented)
	}
}

func TestReference_lockURLs(t *testing.T) {
	_, err := lockurl.Open(t.Context(), "nowhere://", nil)
	if err == nil {
		t.Fatal("an unknown scheme was accepted")
	}
	_, known, _ := strings.Cut(err.Error(), "write one of ")
	var schemes []string
	for _, row := range LockURLs.Table(t) {
		first, rest, _ := strings.Cut(row[0], "://")
		for _, scheme := range append([]string{first}, regexp.MustCompile(`[a-z+]+`).FindAllString(row[1], -1)...) {
			schemes = append(schemes, scheme+"://")
			locker, err := lockurl.Open(t.Context(), scheme+"://"+rest, nil)
			if err != nil {
				t.Errorf("%s://%s: %v", scheme, rest, err)
				continue
			}
			if err := locker.Close(t.Context()); err != nil {
				t.Errorf("%s://%s: %v", scheme, rest, err)
			}
		}
	}
	slices.Sort(schemes)
	if want := slices.Sorted(strings.FieldsSeq(known)); !slices.Equal(schemes, want) {
		t.Errorf("the table has %q, lockurl knows %q", schemes, want)
	}
}

// sameRows compares the first two columns of a table, name and default, with those of the code, in order.
func sameRows(t *testing.T, place Place, want [][]string) {
	t.Helper()
	var got [][]string
	for _, row := range place.Table(t) {
		got = append(got, row[:2])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the table has\n%q\nthe code\n%q", place, got, want)
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
