package pglock

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// A poll would find a grant again and again, until its waiter has claimed it.
func TestLook_L_wokenWaiter_isNotAskedFor(t *testing.T) {
	to := &waiter{wake: make(chan driver.Wake, 1), entered: true}
	w := &wakes{waiting: map[string]*waiter{"owner": to}} // without a server
	w.wake("owner", driver.Wake{})
	if ahead, err := w.look(); len(to.wake) != 1 || ahead != -1 || err != nil {
		t.Errorf("woken %d times, the look answers %d, %v; want -1", len(to.wake), ahead, err)
	}
}

// A driver that polls because 50 others listen listens as soon as one of them has ended.
func TestListen_L_placeFree_listens(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := migratedDB(t, "&pool_max_conns=60")
	var others []*pgxpool.Conn
	for range maxListeners {
		conn, err := pool.Acquire(ctx)
		must(t, err)
		defer conn.Release()
		must(t, second(conn.Exec(ctx, "SELECT pg_advisory_lock_shared(1818586987, 1)")))
		others = append(others, conn)
	}
	s := opened(t, db.URL())
	s.wakes.pollFor = 50 * time.Millisecond
	owner, name := strings.Repeat("1", 32), driver.Name{Namespace: "n", Key: "k"}
	wakes, stop, err := s.Listen(ctx, name, owner)
	must(t, err)
	defer stop()
	if channel := s.wakes.enter(owner); channel != "" {
		t.Error("it listens beside 50 others")
	}
	must(t, second(others[0].Exec(ctx, "SELECT pg_advisory_unlock_shared(1818586987, 1)")))
	servers.Await(t, 10*time.Second, "the driver listens", func() bool { return s.wakes.enter(owner) != "" })
	select {
	case wake, ok := <-wakes:
		if !ok || wake.Seq != 0 {
			t.Errorf("woken by %+v, %t", wake, ok)
		}
	case <-time.After(10 * time.Second):
		t.Error("the waiter does not ask again, so its place has no channel")
	}
}
