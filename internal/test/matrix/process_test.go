package matrix

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// A waiter has the lock one TTL after its holder was killed, with a higher token.
func holderKilled(t *testing.T, s *service) {
	const key, ttl = "holderKilled", time.Second
	holder := startChild(t, "lock", order{URL: s.URL(), Key: key, TTL: ttl})
	holder.holds()
	l := locker(t, s.client(t), distlock.Options{TTL: ttl, Wait: -1})
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Fatalf("while the holder lives: %v", err)
	}
	holder.Kill()
	start := time.Now()
	lease := mustAcquire(t, l, key)
	recovered(t, start, ttl+time.Second)
	rises(t, holder.fence, lease.Fence())
	mustRelease(t, lease)
}

// A holder that was stopped for longer than its TTL, while another one took the session and saved,
// writes before it looks at anything. The lock cannot prevent that: the store refuses it. Then the
// holder is told.
func holderStoppedWritten(t *testing.T, s *service) {
	holderStopped(t, s, "holderStoppedWritten", nil, func(next *turn) error { return next.save(next.ctx, "new") }, "new")
}

// The same while the new holder has only loaded the history, and waits for its model.
func holderStoppedLoaded(t *testing.T, s *service) {
	holderStopped(t, s, "holderStoppedLoaded", nil, func(next *turn) error {
		_, err := next.Load(next.ctx, "")
		return err
	})
}

// The same when the new holder has cleared the session: that cannot be undone.
func holderStoppedCleared(t *testing.T, s *service) {
	holderStopped(t, s, "holderStoppedCleared", nil, func(next *turn) error { return next.Clear(next.ctx) }, cleared)
}

// The same after the new holder's turn, when the session has been idle for so long that Redis has
// removed it.
func holderStoppedExpired(t *testing.T, s *service) {
	holderStopped(t, s, "holderStoppedExpired", &sessionstore.Retention{IdleTTL: time.Second}, func(next *turn) error {
		if err := errors.Join(next.save(next.ctx, "new"), next.end()); err != nil {
			return err
		}
		if !servers.Within(5*time.Second, func() bool { return s.mustAsk(t, sessionExists, next.key) == "0" }) {
			return errors.New("the session has not expired")
		}
		return nil
	}, cleared)
}

// cleared stands for what empties a session.
const cleared = ""

// holderStopped stops a process that is in the middle of turns; access is what the next holder of
// each does. All that the first process does then is refused. The sessions have what it had saved
// before, and more.
func holderStopped(t *testing.T, s *service, key string, keep *sessionstore.Retention, access func(*turn) error, more ...string) {
	const ttl = time.Second
	orders := turnOrders(key)
	holder := startChild(t, "turns", sessionOrder{Turns: orders, TTL: ttl, Service: s.target()})
	var began, late map[string]report
	holder.must(holder.Receive(&began))
	in := s.instance(t, distlock.Options{TTL: time.Minute})
	in.keep = keep
	nexts := make([]*turn, len(orders))
	var all sync.WaitGroup
	for _, o := range orders { // opens the connections before the measurement begins
		all.Go(func() { _ = in.session(o.Key, o.Apart).history(t, t.Context()) })
	}
	all.Wait()
	holder.must(holder.Pause())
	start := time.Now()
	for i, o := range orders {
		all.Go(func() {
			next := in.session(o.Key, o.Apart).begin(t)
			nexts[i] = next
			recovered(t, start, ttl+time.Second)
			if err := access(next); err != nil {
				t.Errorf("%s: the new holder: %v", o.Key, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	holder.must(holder.Send("go on"))
	holder.must(holder.Continue())
	holder.must(holder.Receive(&late))

	for i, o := range orders {
		r, next := late[o.Key], nexts[i]
		mark := next.lease.Fence()
		expired := next.lease.Err() != nil // the new holder's turn is over
		if !r.Stale || !r.Lost || r.Fence != began[o.Key].Fence || r.Mark != mark || r.Fence >= next.lease.Fence() {
			t.Errorf("%s: %+v; want the refusal of token %d, the store having seen %d", o.Key, r, began[o.Key].Fence, mark)
		}
		for _, token := range []int64{r.Fence, mark} {
			if !strings.Contains(r.Text, fmt.Sprint(token)) {
				t.Errorf("%s: %q does not name %d", o.Key, r.Text, token)
			}
		}
		if !r.TurnLost {
			t.Errorf("%s: the turn of the stopped holder ended with %q", o.Key, r.Turn)
		}
		var want []string
		if o.Used {
			want = append(want, "old")
		}
		if want = append(want, more...); slices.Contains(want, cleared) {
			want = want[slices.Index(want, cleared)+1:]
		}
		if !expired {
			if err := next.save(next.ctx, "after"); err != nil {
				t.Errorf("%s: the new holder: %v", o.Key, err)
			}
			next.mustEnd(t)
			want = append(want, "after")
		}
		if history := next.history(t, t.Context()); !slices.Equal(history, want) {
			t.Errorf("%s: the session has %q, want %q", o.Key, history, want)
		}
	}
}
