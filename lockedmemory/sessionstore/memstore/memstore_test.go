package memstore_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for the expiry of sessions more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The driver removes a session without an exchange after 24 hours, and the mark of an expired one
// 24 hours after the session. Then it does not admit a token older than 23 hours.
func TestDriver_emptySession_forgottenAfter24h(t *testing.T) {
	const idle = 240 * time.Hour
	for name, c := range map[string]struct {
		save bool
		kept time.Duration
	}{"without an exchange": {false, storedriver.KeepEmpty}, "with an exchange": {true, idle + storedriver.KeepEmpty}} {
		synctest.Test(t, func(t *testing.T) {
			sessions, err := memstore.NewDriver(&storedriver.Retention{IdleTTL: idle, RememberIDs: time.Hour})
			must(t, err)
			const hour = 3_600_000_000
			old := time.Now().UnixMicro()
			ahead := old + 20*24*hour // of a lock service whose clock was ahead
			append := func(fence int64) storedriver.Outcome {
				v, err := sessions.Append(t.Context(), storedriver.Append{
					Write: storedriver.Write{Access: storedriver.Access{Session: "s", Fence: fence, FirstAccess: true}, N: 1,
						Op: fmt.Sprintf("%032d", fence)},
				})
				must(t, err)
				return v.Outcome
			}
			if c.save {
				append(ahead + 1)
			} else {
				_, err := sessions.Read(t.Context(), storedriver.Read{
					Access: storedriver.Access{Session: "s", Fence: ahead + 1, FirstAccess: true}, Limit: 1})
				must(t, err)
			}
			is := func(fence int64, want storedriver.Outcome) {
				t.Helper()
				if got := append(fence); got != want {
					t.Errorf("%s: outcome %d, want %d", name, got, want)
				}
			}
			time.Sleep(c.kept - time.Millisecond)
			is(ahead, storedriver.Stale)
			time.Sleep(time.Millisecond)
			is(old, storedriver.Unowned)
			is(time.Now().UnixMicro()-23*hour-1, storedriver.Unowned)
			is(time.Now().UnixMicro()-23*hour, storedriver.Done)
		})
	}
}

// A later read of a lease checks nothing, and is no use of the session. So it behaves as with the other
// drivers.
func TestRead_laterReadOfALease_leavesTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, err := memstore.NewDriver(&storedriver.Retention{IdleTTL: time.Minute})
		must(t, err)
		fence := time.Now().UnixMicro()
		access := func(fence int64) storedriver.Access { return storedriver.Access{Session: "s", Fence: fence} }
		write := storedriver.Write{Access: access(fence), N: 1, Op: fmt.Sprintf("%032d", 1)}
		_, err = sessions.Append(t.Context(), storedriver.Append{Write: write})
		must(t, err)
		for _, c := range []struct {
			fence int64
			wait  time.Duration
			want  int
		}{{fence - 1, 0, 1}, {fence + 1, 0, 1}, {fence, 40 * time.Second, 1}, {fence, 40 * time.Second, 0}} {
			time.Sleep(c.wait)
			page, err := sessions.Read(t.Context(), storedriver.Read{Access: access(c.fence), Limit: 9})
			if err != nil || page.Outcome != storedriver.Done || len(page.Entries) != c.want {
				t.Errorf("%+v: %+v, %v", c, page, err)
			}
		}
		second := storedriver.Write{Access: access(fence), N: 2, Op: fmt.Sprintf("%032d", 2)}
		if v, err := sessions.Append(t.Context(), storedriver.Append{Write: second}); err != nil ||
			v.Outcome != storedriver.Gone {
			t.Errorf("a Save after the expiry: %+v, %v", v, err)
		}
	})
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Service {
		locks := memlock.NewDriver()
		stores := make(map[storedriver.Retention]storedriver.Driver)
		return storetest.Service{
			Driver: func(_ testing.TB, keep storedriver.Retention) storedriver.Driver {
				if stores[keep] == nil {
					d, err := memstore.NewDriver(&keep)
					must(tb, err)
					stores[keep] = d
				}
				return stores[keep]
			},
			Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker {
				l, err := distlock.New(locks, opts)
				must(tb, err)
				return l
			},
		}
	})
}
