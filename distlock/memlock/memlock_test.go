package memlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDriver(testing.TB) driver.Driver { return memlock.NewDriver() }

func TestConformance(t *testing.T) { drivertest.Run(t, drivertest.Service{New: newDriver}) }

func BenchmarkAcquireRelease(b *testing.B) { drivertest.Benchmark(b, newDriver) }

// Every release that finds an expired lock hands it to the first waiter, also if it ends no grant.
func TestRelease_L_expiredLockGoesToTheWaiter(t *testing.T) {
	for name, release := range map[string]driver.ReleaseRequest{
		"the last holder, late":   {Owner: "holder"},
		"the clean-up of a loss":  {Owner: "holder", Tombstone: time.Second},
		"another waiter leaves":   {Owner: "third", Leave: true},
		"an owner without a part": {Owner: "stranger"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.NewDriver()
				n := driver.Name{Namespace: "n", Key: "k"}
				acquire := func(owner string, ttl, alive time.Duration) driver.AcquireReply {
					reply, err := d.Acquire(t.Context(), driver.AcquireRequest{Name: n, Owner: owner, TTL: ttl, Alive: alive, Seq: 1})
					if err != nil {
						t.Fatal(err)
					}
					return reply
				}
				acquire("holder", time.Second, 0)
				wakes, stop, err := d.(driver.Listener).Listen(t.Context(), n, "waiter")
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				acquire("waiter", time.Minute, 5*time.Second)
				acquire("third", time.Minute, 5*time.Second)
				release.Name = n
				reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: n, Owner: "stranger"})
				if err != nil || reply.Released || len(wakes) != 0 {
					t.Fatalf("while it is held: %+v, %v", reply, err)
				}
				time.Sleep(time.Second)
				if reply, err := d.Release(t.Context(), release); err != nil || reply.Released {
					t.Errorf("Release: %+v, %v", reply, err)
				}
				if len(wakes) != 1 {
					t.Fatal("the waiter was not woken")
				}
				if wake := <-wakes; wake.TTL != 4*time.Second || wake.Seq != 1 {
					t.Errorf("the waiter was woken by %+v", wake)
				}
				if state, err := d.Inspect(t.Context(), n); err != nil || !state.Held || state.TTL != 4*time.Second {
					t.Errorf("%+v, %v", state, err)
				}
				if reply := acquire("waiter", time.Minute, 0); reply.Outcome != driver.Granted {
					t.Errorf("the claim: %+v", reply)
				}
			})
		})
	}
}
