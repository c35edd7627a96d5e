package matrix

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{"lock": child.Role(serveLock), "turns": child.Role(serveTurns), "answers": child.Role(serveAnswers)})
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(m)
}

// order is the lock that a child takes.
type order struct {
	URL, Key string
	TTL      time.Duration
}

// serveLock waits for the lock and sends its token. At the parent's word serveLock releases the
// lock and sends the error.
func serveLock(ctx context.Context, parent *child.Line, o order) error {
	l, err := lockurl.Open(ctx, o.URL, options(withTTL(o.TTL), withWait(time.Minute)))
	if err != nil {
		return err
	}
	lease, err := l.Acquire(ctx, o.Key)
	if err != nil {
		return err
	}
	var word string
	for err = parent.Send(lease.Fence()); err == nil; err = parent.Send(fmt.Sprint(lease.Release(ctx))) {
		if err := parent.Receive(&word); err != nil {
			return err
		}
	}
	return err
}

// peer is another process, a holder or a waiter.
type peer struct {
	*child.Child
	tb    testing.TB
	fence int64
}

// startChild starts a child in one of the roles of TestMain, and does not wait for its first word.
func startChild(tb testing.TB, role string, config any) *peer {
	tb.Helper()
	process, err := child.StartRole(context.Background(), role, config, os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		process.Kill()
		_ = process.Close()
	})
	return &peer{Child: process, tb: tb}
}

func (c *peer) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("the child: %v", err)
	}
}

// holds waits until the child has its lock.
func (c *peer) holds() {
	c.tb.Helper()
	c.must(c.Receive(&c.fence))
}

func (c *peer) release() {
	c.tb.Helper()
	var answer string
	c.must(c.Send("release"))
	c.must(c.Receive(&answer))
	if answer != fmt.Sprint(nil) {
		c.tb.Errorf("the child's release: %s", answer)
	}
}
