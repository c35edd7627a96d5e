package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// entered is the channel of a waiter that listens and has entered the queue of a held name.
func entered(t *testing.T, d driver.Driver) (wakes <-chan driver.Wake) {
	t.Helper()
	mustAcquire(t, d, acquire(owner1, time.Minute))
	wakes, stop, err := d.(driver.Listener).Listen(context.Background(), name, owner2)
	must(t, err)
	t.Cleanup(stop)
	req := acquire(owner2, time.Minute)
	req.Alive, req.Seq = time.Minute, 1
	mustAcquire(t, d, req)
	return wakes
}

// A waiter relies on no notification. An error of a notification is that of no call.
func TestRelease_L_notifyFails_succeeds(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url := grantedTo(t, db, "app")
	do(t, db, "REVOKE EXECUTE ON FUNCTION belugalock.notify_v1 FROM app"+db.Name())
	a, b := drivers(url)(t), drivers(url)(t)
	entered(t, b)
	if reply, err := a.Release(context.Background(), driver.ReleaseRequest{Name: name, Owner: owner1}); err != nil || !reply.Released {
		t.Errorf("Release: %+v, %v", reply, err)
	}
	req := acquire(owner2, time.Minute)
	req.Alive, req.Seq = time.Minute, 2
	if reply, err := b.Acquire(context.Background(), req); err != nil || reply.Outcome != driver.Granted {
		t.Errorf("Acquire after the handoff: %+v, %v", reply, err)
	}
}

// A handoff is notified also if the driver of the release closes at once.
func TestClose_L_lastHandoff_isNotified(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	a, b := drivers(db.URL())(t), drivers(db.URL())(t)
	wakes := entered(t, b)
	must(t, second(a.Release(context.Background(), driver.ReleaseRequest{Name: name, Owner: owner1})))
	must(t, a.Close())
	select {
	case wake := <-wakes:
		if wake.Seq != 1 {
			t.Errorf("woken by %+v, want the handoff", wake)
		}
	case <-time.After(10 * time.Second):
		t.Error("the waiter was not notified")
	}
}

// Any role can listen to the asks. It learns no name.
func TestNotify_namesHidden(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	d := drivers(db.URL())(t)
	mustAcquire(t, d, acquire(owner1, time.Minute))
	stranger := newSession(t, db.URL())
	stranger.must("LISTEN belugalock_asks")
	state, err := d.Inspect(t.Context(), name)
	must(t, err)
	must(t, second(d.(driver.Asker).Ask(t.Context(), driver.AskRequest{Name: name, Fence: state.Fence})))
	message, err := stranger.conn.WaitForNotification(t.Context())
	must(t, err)
	if message.Payload != owner1 {
		t.Errorf("an ask sends %q", message.Payload)
	}
}
