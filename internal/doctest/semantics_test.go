package doctest

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// The figures that semantics.md gives for the deadline of a lease with the default TTL.
func TestSemantics_deadlineOfTheDefaultTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := inProcess(t, &distlock.Options{RenewEvery: -1})
		start := time.Now()
		lease := acquire(t, locker)
		<-lease.Context().Done()
		if !errors.Is(lease.Err(), distlock.ErrLost) {
			t.Fatal(lease.Err())
		}
		lasted, ttl := time.Since(start), locker.Options().TTL
		text := strings.Join(readPage(t, "docs/semantics.md").lines, " ")
		says := fmt.Sprintf("With the default TTL of %.0f s, a lease that cannot be renewed ends on the holder's side after %.3f s: %d ms before",
			ttl.Seconds(), lasted.Seconds(), (ttl - lasted).Milliseconds())
		if !strings.Contains(text, says) {
			t.Errorf("semantics.md should say: %s", says)
		}
	})
}

// The sentinels that distlock exports are the rows of the table of errors.
func TestSemantics_everyErrorIsExplained(t *testing.T) {
	text := ""
	for _, row := range readPage(t, "docs/semantics.md").table(t, "## What an error means") {
		text += row[0] + "\n"
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "distlock", "errors.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Scope.Objects)) {
		if !strings.HasPrefix(name, "Err") {
			continue
		}
		if !strings.Contains(text, name) {
			t.Errorf("%s is not in the table", name)
		}
	}
}
