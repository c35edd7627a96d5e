package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

// listening makes a listener over the servers.
func listening(t *testing.T, servers []*server) (wakes <-chan driver.Wake, stop func()) {
	t.Helper()
	on, _ := driver.As[driver.Listener](newDriver(t, servers))
	wakes, stop, err := on.Listen(t.Context(), name, newRequest().Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	synctest.Wait()
	return wakes, stop
}

// woken reports whether a wake is there.
func woken(wakes <-chan driver.Wake) bool {
	synctest.Wait()
	select {
	case <-wakes:
		return true
	default:
		return false
	}
}

// ending is a node whose notices end.
type ending struct {
	quorum.Node
	wakes chan driver.Wake
}

func (e ending) Listen(context.Context, driver.Name) (<-chan driver.Wake, func(), error) {
	return e.wakes, func() {}, nil
}

func TestListen(t *testing.T) { listeners.run(t) }

var listeners = scenarios{
	"Listen_quorumOfNotices_wakesAtOnce": func(t *testing.T, servers []*server) {
		wakes, stop := listening(t, servers)
		servers[0].released(name)
		if woken(wakes) {
			t.Error("one notice has woken the waiter at once")
		}
		servers[1].released(name)
		if !woken(wakes) {
			t.Error("a quorum of notices did not")
		}
		servers[2].released(name) // of the same release
		time.Sleep(10 * time.Millisecond)
		if woken(wakes) {
			t.Error("the last notice of a release has woken the waiter again")
		}
		servers[2].released(name)
		servers[0].released(name)
		if !woken(wakes) {
			t.Error("the next release did not wake the waiter")
		}
		servers[1].released(name) // of the same release
		time.Sleep(time.Second)
		woken(wakes)
		servers[0].released(name)
		time.Sleep(3 * time.Millisecond)
		if !woken(wakes) {
			t.Error("not woken 3 ms after the first notice")
		}
		time.Sleep(time.Second)
		servers[0].released(name)
		synctest.Wait()
		stop()
		time.Sleep(time.Second)
		if woken(wakes) {
			t.Error("a stopped listener was woken")
		}
	},
	"Listen_oneNodeHangs_ready": func(t *testing.T, servers []*server) {
		defer servers[0].hang()()
		start := time.Now()
		listening(t, servers)
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %s", took)
		}
		fail(servers[1:], driver.ErrRights)
		on, _ := driver.As[driver.Listener](newDriver(t, servers))
		if _, _, err := on.Listen(t.Context(), name, newRequest().Owner); err == nil || errors.Is(err, driver.ErrRights) {
			t.Errorf("with too few nodes: %v, want an error of the quorum", err)
		}
	},
	// A losing attempt wakes no waiter: each of them would ask, lose and wake the others.
	"Listen_undo_noNotice": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		token := time.Now().UnixMicro()
		servers[0].raw(t, "x", token, long)
		servers[1].raw(t, "x", token, long)
		wakes, _ := listening(t, servers)
		refused(t, d, newRequest(), driver.Busy)
		time.Sleep(10 * time.Millisecond)
		if woken(wakes) || servers[2].state(t, name).Held {
			t.Error("the undo of an attempt has woken a waiter, or is missing")
		}
	},
	// The Locker sends no Release for a lost lease.
	"Listen_lostGrant_notice": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		lose(servers[:2])
		wakes, _ := listening(t, servers)
		extend(t, d, req)
		time.Sleep(10 * time.Millisecond)
		if !woken(wakes) {
			t.Error("the end of a lost grant has woken no waiter")
		}
	},
	"Listen_deaf_wakesEnd": func(t *testing.T, servers []*server) {
		var nodes []quorum.Node
		ends := make([]chan driver.Wake, len(servers))
		for i, s := range servers {
			ends[i] = make(chan driver.Wake)
			nodes = append(nodes, ending{link{s}, ends[i]})
		}
		d := quorum.New(nodes, -1)
		defer d.Close()
		on, _ := driver.As[driver.Listener](d)
		wakes, stop, err := on.Listen(t.Context(), name, newRequest().Owner)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		close(ends[0])
		if woken(wakes) {
			t.Error("the wakes have ended, though a quorum notifies")
		}
		close(ends[1])
		if !woken(wakes) {
			t.Error("the wakes have not ended")
		}
		ends[2] <- driver.Wake{}
	},
}
