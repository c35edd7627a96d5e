package scenario

import (
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestAcquire_namesAnotherOutcome(t *testing.T) {
	locks := memlock.NewDriver()
	defer locks.Close()
	req := driver.AcquireRequest{Name: driver.Name{Namespace: "bench", Key: "k"}, Owner: "a", TTL: time.Minute}
	if err := acquire(t.Context(), locks, req, driver.Granted); err != nil {
		t.Fatal(err)
	}
	req.Owner = "b"
	const want = "the outcome of an acquisition is 0, want 1"
	if err := acquire(t.Context(), locks, req, driver.Granted); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
