package memlock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The sweep removes names that have no meaning any more, and no others.
func TestTable_sweepKeepsWhatHasMeaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver().(*table)
		request := func(key string) driver.AcquireRequest {
			return driver.AcquireRequest{Name: driver.Name{Namespace: "n", Key: key}, Owner: key, TTL: time.Hour}
		}
		outcome := func(req driver.AcquireRequest) driver.Outcome {
			reply, err := d.Acquire(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return reply.Outcome
		}
		release := func(req driver.AcquireRequest, tombstone time.Duration) {
			over := driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: tombstone}
			if _, err := d.Release(t.Context(), over); err != nil {
				t.Fatal(err)
			}
		}
		held, cancelled, ahead := request("held"), request("cancelled"), request("ahead")
		outcome(held)
		release(cancelled, time.Hour)
		floor := time.Now().Add(time.Hour).UnixMicro()
		outcome(ahead)
		raise := driver.RaiseRequest{Name: ahead.Name, Owner: ahead.Owner, Floor: floor}
		if raised, err := d.Raise(t.Context(), raise); err != nil || raised.Fence != floor {
			t.Fatalf("Raise: %+v, %v", raised, err)
		}
		release(ahead, 0)
		const names = 10_000
		for i := range names {
			req := request(fmt.Sprint(i))
			outcome(req)
			release(req, time.Second)
			if i%1000 == 0 {
				time.Sleep(2 * time.Second)
			}
		}
		if n := len(d.records); n > names/2 {
			t.Errorf("%d names are remembered", n)
		}
		other := request("held")
		other.Owner = "other"
		if got := outcome(other); got != driver.Busy {
			t.Errorf("a lock that is held was granted: %d", got)
		}
		if got := outcome(cancelled); got != driver.Cancelled {
			t.Errorf("an owner that was cancelled is answered %d", got)
		}
		next := request("ahead")
		next.Owner = "next"
		if reply, err := d.Acquire(t.Context(), next); err != nil || reply.Fence <= floor {
			t.Errorf("%+v, %v: the fence fell below %d", reply, err, floor)
		}
	})
}

func TestTable_tombstonesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver().(*table)
		name := driver.Name{Namespace: "n", Key: "k"}
		for i := range 100 {
			over := driver.ReleaseRequest{Name: name, Owner: fmt.Sprint(i), Tombstone: time.Second}
			if _, err := d.Release(t.Context(), over); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := len(d.records[name].tombstones); n > 2 {
			t.Errorf("%d tombstones are kept", n)
		}
	})
}
