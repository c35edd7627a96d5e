package pglock

import (
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

// A poll finds a handoff until its waiter claims the lock.
func TestDeliver_L_pollRepeats_wakesOnce(t *testing.T) {
	to := &waiter{wake: make(chan driver.Wake, 1)}
	w := &wakes{waiting: map[string]*waiter{"owner": to}}
	for _, handoff := range []string{"owner:1:2000000:0:7:9", "owner:1:2000000:0:17:19"} {
		w.deliver(handoff)
		if len(to.wake) != 1 {
			t.Fatalf("%s woke no waiter", handoff)
		}
		<-to.wake
		if w.deliver(handoff); len(to.wake) != 0 {
			t.Errorf("%s woke its waiter twice", handoff)
		}
	}
}
