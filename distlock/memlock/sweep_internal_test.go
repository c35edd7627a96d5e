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
		request := func(key, owner string) driver.AcquireRequest {
			return driver.AcquireRequest{Name: driver.Name{Namespace: "n", Key: key}, Owner: owner, TTL: time.Hour}
		}
		acquire := func(req driver.AcquireRequest) driver.AcquireReply { return must(d.Acquire(t.Context(), req)) }
		release := func(req driver.AcquireRequest, tombstone time.Duration) {
			must(d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: tombstone}))
		}
		cancelled, ahead := request("cancelled", "1"), request("ahead", "1")
		acquire(request("held", "1"))
		release(cancelled, time.Hour)
		floor := time.Now().Add(time.Hour).UnixMicro()
		acquire(ahead)
		raise := driver.RaiseRequest{Name: ahead.Name, Owner: ahead.Owner, Floor: floor}
		if raised := must(d.Raise(t.Context(), raise)); raised.Fence != floor {
			t.Fatalf("Raise: %+v", raised)
		}
		release(ahead, 0)
		const names = 10_000
		for i := range names {
			req := request(fmt.Sprint(i), "1")
			acquire(req)
			release(req, time.Second)
			if i%1000 == 0 {
				time.Sleep(2 * time.Second)
			}
		}
		if n := len(d.records); n > names/2 {
			t.Errorf("%d names are remembered", n)
		}
		if got := acquire(request("held", "2")).Outcome; got != driver.Busy {
			t.Errorf("a lock that is held was granted: %d", got)
		}
		if got := acquire(cancelled).Outcome; got != driver.Cancelled {
			t.Errorf("an owner that was cancelled is answered %d", got)
		}
		if reply := acquire(request("ahead", "2")); reply.Fence <= floor {
			t.Errorf("%+v: the fence fell below %d", reply, floor)
		}
	})
}

// must is the reply of a driver that does not fail.
func must[T any](reply T, err error) T {
	if err != nil {
		panic(err)
	}
	return reply
}

func TestTable_tombstonesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver().(*table)
		name := driver.Name{Namespace: "n", Key: "k"}
		for i := range 100 {
			must(d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: fmt.Sprint(i), Tombstone: time.Second}))
			time.Sleep(time.Second)
		}
		if n := len(d.records[name].tombstones); n > 2 {
			t.Errorf("%d tombstones are kept", n)
		}
	})
}
