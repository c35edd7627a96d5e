package subject_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/bench/internal/wire"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

func TestLocker_waitsUntilTheHolderReleases(t *testing.T) {
	s := testservers.StartRedis(t)
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

// passes has a Locker wait for a lock that another holds for a moment.
func passes(t *testing.T, name, addr, key string) error {
	a, b := open(t, name, addr, nil), open(t, name, addr, nil)
	held, err := a.Acquire(t.Context(), key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		held, err := b.Acquire(ctx, key)
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

func TestLocker_waitEndsWithItsContext(t *testing.T) {
	s := testservers.StartRedis(t)
	for _, name := range subject.Contended() {
		l := open(t, name, s.Addr(), nil)
		held, err := l.Acquire(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := l.Acquire(ctx, name); err == nil {
			t.Errorf("%s: got a lock that was held", name)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSetup_commandsOfEverySubjectAreCounted takes and releases a free lock: a subject needs from
// two to four commands, even if its scripts are not loaded yet.
func TestSetup_commandsOfEverySubjectAreCounted(t *testing.T) {
	s := testservers.StartRedis(t)
	for _, name := range slices.Concat(subject.Free(), []string{subject.BsmEager}) {
		var commands wire.Counter
		l := open(t, name, s.Addr(), &commands)
		for range 10 {
			held, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := held.Release(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := commands.Commands(); n < 20 || n > 40 {
			t.Errorf("%s: %d commands for 10 locks, want 20 to 40", name, n)
		}
	}
}

func TestOpen_unknownName(t *testing.T) {
	if _, err := subject.Open("zookeeper", subject.Setup{}); err == nil {
		t.Error("no error")
	}
}

func open(t *testing.T, name, addr string, commands *wire.Counter) subject.Locker {
	t.Helper()
	l, err := subject.Open(name, subject.Setup{Addr: addr, TTL: 30 * time.Second, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return l
}

func TestTrier_triesOnce(t *testing.T) {
	addrs := strings.Join(testservers.StartQuorum(t, 5).Addrs(), ",")
	for _, name := range []string{subject.OursQuorum, subject.RedsyncQuorum} {
		first, second := open(t, name, addrs, nil).(subject.Trier), open(t, name, addrs, nil).(subject.Trier)
		held, err := first.TryAcquire(t.Context(), name)
		if err != nil || held == nil {
			t.Fatalf("%s: a free lock: %v, %v", name, held, err)
		}
		if other, err := second.TryAcquire(t.Context(), name); err != nil || other != nil {
			t.Errorf("%s: a lock that is held: %v, %v", name, other, err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
