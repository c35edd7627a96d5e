package memlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// A lock that nobody has given back is handed on by whoever finds it free: also by a release that is about something else, as
// the clean-up of the lease that was lost.
func TestRelease_L_ofAnybodyHandsOnALockThatHasExpired(t *testing.T) {
	for name, release := range map[string]driver.ReleaseRequest{
		"the last holder, late":   {Owner: "holder"},
		"the clean-up of a loss":  {Owner: "holder", VoidFor: time.Second},
		"another who leaves":      {Owner: "third", Leave: true},
		"who never had a part in": {Owner: "stranger"},
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
				if reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: n, Owner: "stranger"}); err != nil || reply.Released || len(wakes) != 0 {
					t.Fatalf("while it is held: %+v, %v", reply, err)
				}
				time.Sleep(time.Second)
				if reply, err := d.Release(t.Context(), release); err != nil || reply.Released {
					t.Errorf("Release: %+v, %v", reply, err)
				}
				select {
				case wake := <-wakes:
					if wake.TTL != 4*time.Second || wake.Seq != 1 {
						t.Errorf("it was told %+v", wake)
					}
				default:
					t.Error("it was not told")
				}
				if state, err := d.Inspect(t.Context(), n); err != nil || !state.Held || state.TTL != 4*time.Second {
					t.Errorf("%+v, %v", state, err)
				}
				if reply := acquire("waiter", time.Minute, 0); reply.Outcome != driver.Granted {
					t.Errorf("its claim: %+v", reply)
				}
			})
		})
	}
}
