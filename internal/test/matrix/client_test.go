package matrix

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// With all documented rights everything works; without those for notifications too, by polling in the
// queue. The tests of drivers have the other rights.
func rightsMissing(t *testing.T, s *service) {
	const key = "rightsMissing"
	var documented []string
	for _, right := range servers.DocumentedRights(t, "../../../distlock/redislock/doc.go").Needed {
		if command, ok := strings.CutPrefix(right, "+"); ok {
			documented = append(documented, command)
		}
	}
	user := func(name, keys string, without string, more ...string) setting {
		rights := []string{"resetkeys", "~" + keys, "resetchannels", "-@all",
			// what go-redis asks for by itself
			"+hello", "+ping", "+cluster|slots", "+cluster|shards", "+command", "+readonly"}
		for _, command := range documented {
			if command != without {
				rights = append(rights, "+"+command)
			}
		}
		return s.user(t, name, append(rights, more...)...)
	}
	inOrder(t, s, user("complete", namespace+":*", "", "&"+namespace+":*", "+publish", "+subscribe"), key+"-complete", true)
	for name, more := range map[string][]string{
		"nothing-of-that":    {},
		"without-subscribe":  {"&" + namespace + ":*", "+publish"},
		"without-publish":    {"&" + namespace + ":*", "+subscribe"},
		"without-channels":   {"+publish", "+subscribe"},
		"with-other-channel": {"&other:*", "+publish", "+subscribe"},
	} {
		as := user(name, namespace+":*", "", more...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inOrder(t, s, as, key+"-"+name, false)
		})
	}
}

// inOrder has two waiters queue, and checks that they have the lock in their order; at once with
// notifications. Without them, each Locker logs that once.
func inOrder(t *testing.T, s *service, as setting, key string, notified bool) {
	t.Helper()
	var logs [3]strings.Builder
	var lockers [3]*distlock.Locker
	for i := range lockers {
		lockers[i] = locker(t, s.client(t, as), distlock.Options{Wait: -1, Logger: slog.New(slog.NewTextHandler(&logs[i], nil))})
	}
	for range 2 {
		holder := mustAcquire(t, lockers[0], key)
		if _, err := lockers[1].TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("%s: a second lock: %v", key, err)
		}
		first := enqueue(t, s, lockers[1], key, 1)
		second := enqueue(t, s, lockers[2], key, 2)
		if err := holder.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("%s: Extend: %v", key, err)
		}
		limit := 250*time.Millisecond + prompt*4 // a waiter polls this often
		if notified {
			limit = 4 * prompt
		}
		for _, w := range []*waiting{first, second} {
			mustRelease(t, holder)
			start := time.Now()
			next := w.lease(limit + time.Second)
			recovered(t, start, limit)
			rises(t, holder.Fence(), next.Fence())
			holder = next
			if w == first {
				second.still()
			}
		}
		mustRelease(t, holder)
	}
	s.gone(t, key)
	s.queueGone(t, key)
	for i := range logs {
		if err := lockers[i].Close(t.Context()); err != nil { // waits for the log
			t.Error(err)
		}
		want := 1
		if notified || i == 0 { // a try that does not wait is not notified
			want = 0
		}
		if text := logs[i].String(); strings.Count(text, "cannot notify") != want || strings.Count(text, "\n") != want {
			t.Errorf("%s: Locker %d says %q, want %d warnings", key, i, text, want)
		}
	}
}
