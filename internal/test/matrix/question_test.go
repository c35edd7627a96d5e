package matrix

import (
	"strconv"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// recordKeep is how long the record of a new grant outlives the lock.
const recordKeep = driver.FenceKeep + 20*time.Millisecond

// question is what a test asks the server itself about a key, past all clients and proxies.
type question struct {
	redis    func(key string) []string
	postgres string                    // SQL, where {key} and {now} stand for the key and the clock
	session  bool                      // it is about a session, not about a lock
	node     func(key string) []string // of a quorum; nil: as redis
}

var (
	isHeld = question{ // 1 or 0
		redis: func(key string) []string {
			return []string{"EVAL", `
local record = redis.call('GET', KEYS[1])
if not record or not string.find(record, '^[bq]%d[hH]') then
  return 0
end
local ttl = redis.call('PTTL', KEYS[1])
local keep = string.sub(record, 1, 2) == 'q1' and string.sub(record, 85, 95) or string.sub(record, 101, 111)
return (ttl < 0 or ttl > tonumber(keep)) and 1 or 0`, "1", lockKey(key)}
		},
		postgres: "SELECT count(*) FROM belugalock.lease WHERE key = {key} AND NOT released AND expires_at > {now}",
	}
	waiters = question{
		redis:    func(key string) []string { return []string{"ZCARD", queueKey(key)} },
		postgres: "SELECT count(*) FROM belugalock.waiter WHERE key = {key} AND alive_until > {now}",
		node:     func(key string) []string { return listeners(namespace, key) },
	}
	// waiterRows are, by turns, owners and what the backend keeps of them: the second field is seq.
	waiterRows = question{
		redis:    func(key string) []string { return []string{"HGETALL", waitersKey(key)} },
		postgres: "SELECT owner || ' :' || seq || ':' FROM belugalock.waiter WHERE key = {key}",
	}
	queueKeys = question{
		redis:    func(key string) []string { return []string{"EXISTS", queueKey(key), waitersKey(key)} },
		postgres: "SELECT count(*) FROM belugalock.waiter WHERE key = {key}",
	}
	// expire lets a lock expire.
	expire = question{
		redis: func(key string) []string {
			return []string{"PEXPIRE", lockKey(key), strconv.FormatInt(recordKeep.Milliseconds(), 10)}
		},
		postgres: "UPDATE belugalock.lease SET expires_at = {now} WHERE key = {key}",
		node:     func(key string) []string { return []string{"EVAL", expireRecord, "1", lockKey(key)} },
	}
	// recordOfQueue is the beginning of a record: "b2H" means that the lock is held and has a
	// queue.
	recordOfQueue = question{
		redis:    func(key string) []string { return []string{"GETRANGE", lockKey(key), "0", "2"} },
		postgres: "SELECT 'b2H' FROM belugalock.lease WHERE key = {key} AND NOT released AND waiting > 0",
	}
	deleteRecord = question{
		redis:    func(key string) []string { return []string{"DEL", lockKey(key)} },
		postgres: "DELETE FROM belugalock.lease WHERE key = {key}",
	}
	sessionExists = question{ // 1 or 0
		session:  true,
		redis:    func(key string) []string { return []string{"EXISTS", logKey(key)} },
		postgres: "SELECT count(*) FROM belugalock.session WHERE name = {key} AND exchanges > 0 AND kept_until > clock_timestamp()",
	}
)

// asked returns the answer of the server that has the key.
func (s *service) asked(q question, key string) (string, error) {
	if s.postgres != nil {
		return s.postgres.asked(q.postgres, key)
	}
	if s.beside != nil {
		return s.askedAll(q, key)
	}
	return s.master(key).Do(q.redis(key)...)
}

func (s *service) mustAsk(tb testing.TB, q question, key string) string {
	tb.Helper()
	answer, err := s.asked(q, key)
	if err != nil {
		tb.Fatalf("%s: %v", key, err)
	}
	return answer
}

// gone waits until no client holds key, for at most a second: what a call may leave behind.
func (s *service) gone(tb testing.TB, key string) {
	tb.Helper()
	s.awaitAnswer(tb, time.Second, "0", key, isHeld)
}

// awaitWaiters waits until the queue of key has n waiters.
func (s *service) awaitWaiters(tb testing.TB, key string, n int) {
	tb.Helper()
	s.awaitAnswer(tb, 15*time.Second, strconv.Itoa(n), key, waiters)
}

// queueGone waits until key has no queue, for at most a second.
func (s *service) queueGone(tb testing.TB, key string) {
	tb.Helper()
	s.awaitAnswer(tb, time.Second, "0", key, queueKeys)
}

// awaitAnswer asks until the server gives the answer that is wanted. The limit allows for stalls of
// this process.
func (s *service) awaitAnswer(tb testing.TB, limit time.Duration, want, key string, q question) {
	tb.Helper()
	var answer string
	var err error
	done := func() bool { answer, err = s.asked(q, key); return err == nil && answer == want }
	start := time.Now()
	for more := limit; !servers.Within(more, done); {
		if more = limit + stalls.Stalled(start, time.Now()) - time.Since(start); more <= 0 {
			tb.Fatalf("after %s, %s has the answer %q, %v; want %q", time.Since(start), key, answer, err, want)
		}
	}
}

// expires checks that each key of a lock has a TTL. PostgreSQL sweeps.
func (s *service) expires(tb testing.TB, key string) {
	tb.Helper()
	if s.postgres != nil {
		return
	}
	for _, k := range []string{lockKey(key), queueKey(key), waitersKey(key), tombstonesKey(key)} {
		if mustDo(tb, s.master(key), "PTTL", k) == "-1" {
			tb.Errorf("%s has no TTL", k)
		}
	}
}
