package subject_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }

func open(t *testing.T, name, addr string) subject.Locker {
	t.Helper()
	var setup subject.Setup
	t.Cleanup(setup.Close)
	acquire, err := subject.Lockers[name](&setup, addr)
	if err != nil {
		t.Fatal(err)
	}
	return acquire
}

func TestLocker_waitsUntilTheHolderReleases(t *testing.T) {
	s := servers.StartRedis(t)
	for _, name := range subject.Contended() {
		tries := 1
		if name == subject.Rueidislock { // whose waiters sometimes miss the news
			tries = 10
		}
		err := errors.New("never tried")
		for i := 0; i < tries && err != nil; i++ {
			err = passes(t, name, s.Addr(), name+strconv.Itoa(i))
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLocker_onPostgresAndNodes_waits(t *testing.T) {
	p := servers.SharedPostgres(t).NewDatabase(t)
	if err := subject.PreparePostgres(t.Context(), p.URL()); err != nil {
		t.Fatal(err)
	}
	nodes := strings.Join(servers.StartQuorum(t, 5).Addrs(), ",")
	for name, addr := range map[string]string{
		subject.OursPostgres: p.URL(), subject.Allisson: p.URL(), subject.OursQuorum: nodes, subject.Redsync: nodes,
	} {
		if err := passes(t, name, addr, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// passes has a Locker wait for a lock that another holds for a moment.
func passes(t *testing.T, name, addr, key string) error {
	a, b := open(t, name, addr), open(t, name, addr)
	held, err := a(t.Context(), key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		held, err := b(ctx, key)
		if err == nil {
			err = held.Release(t.Context())
		}
		granted <- err
	}()
	select {
	case err := <-granted:
		t.Fatalf("%s: the waiter did not wait: %v", name, err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := held.Release(t.Context()); err != nil {
		return err
	}
	defer time.AfterFunc(2*time.Second, cancel).Stop()
	return <-granted
}
