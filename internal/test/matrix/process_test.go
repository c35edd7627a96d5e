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
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// A waiter has the lock one TTL after its holder was killed, with a higher token.
func holderKilled(t *testing.T, s *service) {
	const key, ttl = "holderKilled", time.Second
	holder := startChild(t, "lock", order{URL: s.URL(), Key: key, TTL: ttl})
	holder.holds()
	l := s.locker(t, withTTL(ttl), forever)
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

// access is what the next holder of a session does while the one before is stopped, and what the
// session has then, after what it had before.
type access struct {
	do   func(next *turn) error
	more []string
	keep *sessionstore.Retention
}

var (
	written = access{do: func(next *turn) error { return next.save(next.ctx, "new") }, more: []string{"new"}}
	// The next holder waits for its model.
	loaded = access{do: func(next *turn) error {
		_, err := next.Load(next.ctx, "")
		return err
	}}
	emptied = access{do: func(next *turn) error { return next.Clear(next.ctx) }, more: []string{cleared}}
	// After the turn of the next holder, the server removes the session, which is idle.
	expired = access{do: func(next *turn) error {
		return errors.Join(next.save(next.ctx, "new"), next.end())
	}, more: []string{cleared}, keep: &sessionstore.Retention{IdleTTL: time.Second}}
)

// cleared stands for what empties a session.
const cleared = ""

// holderStopped: a holder is stopped in the middle of turns, for longer than its TTL, and another
// process takes the sessions. The first one goes on past all checks of its leases. The lock cannot
// prevent that: the store refuses all that it does. The sessions have what it had saved before, and
// more.
func holderStopped(key string, a access) func(*testing.T, *service) {
	return func(t *testing.T, s *service) { stopHolder(t, s, "holderStopped-"+key, a) }
}

func stopHolder(t *testing.T, s *service, key string, a access) {
	const ttl = time.Second
	orders := turnOrders(key)
	holder := startChild(t, "turns", sessionOrder{Turns: orders, TTL: ttl, Service: s.target()})
	var began, late map[string]report
	holder.must(holder.Receive(&began))
	in := s.instance(t, withTTL(time.Minute))
	in.keep = a.keep
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
			if err := a.do(next); err != nil {
				t.Errorf("%s: the new holder: %v", o.Key, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if a.keep != nil {
		for _, o := range orders {
			s.awaitAnswer(t, 5*time.Second, "0", o.Key, sessionExists)
		}
	}
	holder.must(holder.Send("go on"))
	holder.must(holder.Continue())
	holder.must(holder.Receive(&late))

	for i, o := range orders {
		r, next := late[o.Key], nexts[i]
		mark := next.lease.Fence()
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
		if want = append(want, a.more...); slices.Contains(want, cleared) {
			want = want[slices.Index(want, cleared)+1:]
		}
		if next.lease.Err() == nil { // or the new holder's turn is over
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
