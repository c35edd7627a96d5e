package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// youngs makes a driver to which restarts matter, and servers that have just started.
func youngs(t *testing.T, restartDelay time.Duration) (driver.Driver, []*server) {
	servers := newServers(3)
	d := connect(servers, restartDelay)
	t.Cleanup(func() { _ = d.Close() })
	return d, servers
}

func TestYoung_S1_grantsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, servers := youngs(t, long)
		e := connect(servers, long)
		defer e.Close()
		servers[2].fails(driver.ErrNotDone)
		req := newRequest()
		granted(t, d, req)
		servers[2].fails(nil)
		servers[0].restart() // it has lost the grant
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if reply, err := e.Acquire(ctx, newRequest()); err == nil && reply.Outcome == driver.Granted {
			t.Errorf("two holders: %+v", reply)
		}
		time.Sleep(long)
		granted(t, e, newRequest())
	})
}

// The server restarts after it has granted, and before the driver asks how long it is up.
func TestYoung_S1_askedAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, servers := youngs(t, long)
		warm := newRequest()
		granted(t, d, warm)
		release(t, d, warm)
		synctest.Wait()
		servers[2].fails(driver.ErrNotDone)
		servers[1].inject(on("acquire", fault{hold: after(time.Millisecond)}))
		go func() {
			time.Sleep(500 * time.Microsecond)
			servers[1].mu.Lock()
			servers[1].since = time.Now()
			servers[1].mu.Unlock()
		}()
		if reply, err := d.Acquire(t.Context(), newRequest()); !errors.Is(err, driver.ErrTemporary) {
			t.Errorf("%+v, %v; want ErrTemporary", reply, err)
		}
	})
}

func TestAcquire_ttlAboveTheRestartDelay_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := youngs(t, long/2)
		if _, err := d.Acquire(t.Context(), newRequest()); !errors.Is(err, driver.ErrNotDone) || !errors.Is(err, driver.ErrRefused) {
			t.Errorf("%v", err)
		}
	})
}
