package docs

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// The times of the table are those of a Locker with the TTL of the row. The default TTL has a row.
func TestWhenToUse_timesOfEachTTL(t *testing.T) {
	rows := TTLs.Table(t)
	withDefault := false
	for _, row := range rows {
		ttl, isDefault := strings.CutSuffix(row[0], ", the default")
		withDefault = withDefault || isDefault
		synctest.Test(t, func(t *testing.T) {
			opts := &distlock.Options{TTL: written(t, ttl)}
			if isDefault {
				opts = nil
			}
			locker, err := memlock.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer locker.Close(t.Context())
			inForce := fencing.Options(locker)
			lease, err := locker.Acquire(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []time.Duration{
				inForce.TTL, inForce.RenewEvery, time.Until(lease.Deadline()), inForce.TTL + time.Second, inForce.Wait,
			} {
				text := row[i]
				if i == 0 {
					text = ttl
				}
				if got := written(t, text); (got - want).Abs() >= time.Millisecond {
					t.Errorf("TTL %s, column %d: the page says %s, the Locker has %s", row[0], i+1, got, want)
				}
			}
		})
	}
	if !withDefault {
		t.Error("no row is marked as the default")
	}
}

// A call fails after the limit of the page. Behind another call for its key, it fails after twice the limit.
func TestWhenToUse_silentBackend_limitOfACall(t *testing.T) {
	page := strings.Join(readPage(t, "docs/when-to-use.md").lines, "\n")
	if !strings.Contains(page, "after 5 s or a TTL, whichever is less; behind another call of its process, after twice that") {
		t.Error("the page does not have the limit of this test")
	}
	for ttl, limit := range map[time.Duration]time.Duration{30 * time.Second: 5 * time.Second, 2 * time.Second: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			silent := drivertest.NewFaults(memlock.NewDriver())
			locker, err := distlock.New(silent, &distlock.Options{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			defer locker.Close(t.Context())
			answer := make(chan struct{})
			defer close(answer)
			silent.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
			var calls sync.WaitGroup
			for _, want := range []time.Duration{limit, 2 * limit, 2 * limit} {
				calls.Go(func() {
					start := time.Now()
					_, err := locker.Acquire(t.Context(), "orders")
					if took := time.Since(start); !errors.Is(err, distlock.ErrUnavailable) || took != want {
						t.Errorf("TTL %s: %v after %s, want ErrUnavailable after %s", ttl, err, took, want)
					}
				})
				synctest.Wait()
			}
			calls.Wait()
		})
	}
}

func TestWhenToUse_defaultWaitOfATurn(t *testing.T) {
	for _, row := range Waits.Table(t) {
		if row[0] != "a turn of an agent" {
			continue
		}
		text, found := strings.CutSuffix(row[2], ", the default of `lockedmemory.Options.Wait`")
		if !found || written(t, text) != lockedmemory.DefaultWait {
			t.Errorf("the page says %q, the default is %s", row[2], lockedmemory.DefaultWait)
		}
		return
	}
	t.Error("no row about a turn")
}

// written parses a time as pages write it: "1 min 58.548 s".
func written(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.NewReplacer(" ", "", "min", "m").Replace(text))
	if err != nil {
		t.Fatalf("%q is not a time: %v", text, err)
	}
	return d
}
