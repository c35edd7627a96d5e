package docs

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

const configuration = "docs/reference/configuration.md"

// The tables of options have all fields, in order, with their defaults.
func TestReference_optionsAndDefaults(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(t.Context())
	o := fencing.Options(locker)
	driver, err := memstore.NewDriver(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		heading string
		inForce any
		shown   map[string]string // defaults that a table describes
	}{
		{"## distlock.Options", o, map[string]string{"RenewEvery": fmt.Sprintf("TTL/%d", o.TTL/o.RenewEvery), "Holder": "host:pid",
			"Observer": "none", "Logger": "slog.Default()"}},
		{"## lockedmemory.Options", lockedmemory.Options{Wait: lockedmemory.DefaultWait}, map[string]string{"Busy": "Queue"}},
		{"## sessionstore.Retention", driver.Retention(), nil},
		{"## sessionstore.Options", sessionstore.Options{}, map[string]string{"MaxMessage": "8 MiB", "Logger": "slog.Default()"}},
	} {
		want := defaults(reflect.ValueOf(c.inForce), "", c.shown)
		var got []string
		for _, row := range (Place{configuration, c.heading}).Table(t) {
			got = append(got, row[0]+": "+row[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the table has\n%q\nthe code\n%q", c.heading, got, want)
		}
	}

	key := lockedmemory.FixedKey("session")
	store, err := memstore.New(key, sessionstore.JSON[string]{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := lockedmemory.New(store, locker, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = memory.Save(t.Context(), strings.Repeat("x", 8<<20), "") // quotes come in addition
	if !errors.Is(err, sessionstore.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(8<<20)) {
		t.Errorf("the default of MaxMessage is not 8 MiB: %v", err)
	}
}

// defaults returns the fields of a struct and of the structs in it, with their values.
func defaults(options reflect.Value, prefix string, shown map[string]string) (rows []string) {
	for _, field := range reflect.VisibleFields(options.Type()) {
		value := options.FieldByIndex(field.Index)
		text := shown[field.Name]
		switch {
		case value.Kind() == reflect.Struct:
			rows = append(rows, defaults(value, field.Name+".", shown)...)
			continue
		case text != "":
		case value.Kind() == reflect.Bool && !value.Bool():
			text = "off"
		case value.IsZero():
			text = "none"
		default:
			text = strings.Replace(fmt.Sprint(value.Interface()), "h0m0s", "h", 1)
		}
		rows = append(rows, prefix+field.Name+": "+text)
	}
	return rows
}

func TestReference_tracingOptions(t *testing.T) {
	t.Parallel()
	table := fmt.Sprint((Place{configuration, "## Options of tracing.New"}).Table(t))
	for name := range namesOf(t).members["tracing"] {
		if strings.HasPrefix(name, "With") && !strings.Contains(table, name+" ") {
			t.Errorf("the table lacks %s", name)
		}
	}
}

func TestReference_lockURLs(t *testing.T) {
	_, err := lockurl.Open(t.Context(), "nowhere://", nil)
	if err == nil {
		t.Fatal("an unknown scheme was accepted")
	}
	_, known, _ := strings.Cut(err.Error(), "write one of ")
	var schemes []string
	for _, row := range (Place{configuration, "## URLs of lockurl.Open"}).Table(t) {
		first, rest, _ := strings.Cut(row[0], "://")
		for _, scheme := range append([]string{first}, regexp.MustCompile(`[a-z+]+`).FindAllString(row[1], -1)...) {
			schemes = append(schemes, scheme+"://")
			locker, err := lockurl.Open(t.Context(), scheme+"://"+rest, nil)
			if err == nil {
				err = locker.Close(t.Context())
			}
			if err != nil {
				t.Errorf("%s://%s: %v", scheme, rest, err)
			}
		}
	}
	slices.Sort(schemes)
	if want := slices.Sorted(strings.FieldsSeq(known)); !slices.Equal(schemes, want) {
		t.Errorf("the table has %q, lockurl knows %q", schemes, want)
	}
}
