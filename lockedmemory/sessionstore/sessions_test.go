package sessionstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// listing is a driver with the given pages of sessions. The page after them fails.
type listing struct {
	storedriver.Driver
	pages [][]string
}

func (d *listing) Sessions(_ context.Context, after string) ([]string, string, error) {
	i := len(after)
	if i == len(d.pages) {
		return nil, "", errors.New("connection reset")
	}
	return d.pages[i], after + ".", nil
}

// Sessions goes on after an empty page, and ends with an error, or where the caller breaks.
func TestSessions_emptyPageAndError(t *testing.T) {
	d := &listing{pages: [][]string{{"a", "b"}, nil, {"c"}}}
	_, store, _ := over(t, d, &d.Driver, nil)
	var names []string
	var last error
	for name, err := range store.Sessions(t.Context()) {
		names, last = append(names, name), err
	}
	if !slices.Equal(names, []string{"a", "b", "c", ""}) || !errors.Is(last, distlock.ErrUnavailable) {
		t.Errorf("%q, %v", names, last)
	}
	for name := range store.Sessions(t.Context()) {
		if name == "b" {
			break
		}
	}
}
