package loglimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/loglimit"
)

func TestLimit_linesPerPeriod(t *testing.T) {
	var (
		limit  loglimit.Limit
		passed atomic.Int64
		calls  sync.WaitGroup
	)
	now := time.Now()
	expect := func(message string, at time.Time, wantLeftOut int, wantPass bool) {
		t.Helper()
		if leftOut, passes := limit.Pass(message, at); leftOut != wantLeftOut || passes != wantPass {
			t.Errorf("%s: %d left out, passes: %t; want %d, %t", message, leftOut, passes, wantLeftOut, wantPass)
		}
	}
	for range 10_000 {
		calls.Go(func() {
			if leftOut, passes := limit.Pass("broken", now); passes {
				passed.Add(1)
			} else if leftOut != 0 {
				t.Error("a line that is left out has a number")
			}
		})
	}
	calls.Wait()
	if n := passed.Load(); n != loglimit.Most {
		t.Errorf("%d lines passed", n)
	}
	expect("another kind", now, 0, true)
	expect("broken", now.Add(loglimit.Period-1), 0, false)

	next := now.Add(loglimit.Period)
	expect("broken", next, 10_001-loglimit.Most, true)
	expect("broken", next, 0, true)
	expect("another kind", next, 0, true)
}
