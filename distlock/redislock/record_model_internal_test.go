package redislock

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The scripts against a model of the record. Requests come in any order, late and again. Time
// passes when a test script moves all moments that Redis keeps into the past. All times are chosen
// so that no two moments are near each other.

const (
	modelStep = 20 * time.Second // of time that passes; TTLs and promises are half a step off
	forever   = time.Duration(math.MaxInt64)
)

// shift is the test script that lets time pass: ARGV 1 is in ms.
var shift = redis.NewScript(`
local d = tonumber(ARGV[1])
local function life(key)
  local ttl = redis.call('PTTL', key)
  if ttl >= 0 and ttl <= d then
    redis.call('DEL', key)
    return false
  elseif ttl >= 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', ttl - d))
  end
  return ttl > -2
end
if life(KEYS[1]) then
  for _, at in ipairs({68, 84}) do
    local n = math.max(tonumber(redis.call('GETRANGE', KEYS[1], at, at + 15)) - 1000 * d, 0)
    redis.call('SETRANGE', KEYS[1], at, string.format('%016.0f', n))
  end
  local asked = string.match(redis.call('GETRANGE', KEYS[1], 111, -1), '^{"a":"(%d+)"')
  if asked then
    redis.call('SETRANGE', KEYS[1], 117, string.format('%0' .. #asked .. '.0f', math.max(asked - 1000 * d, 0)))
  end
end
life(KEYS[2])
if life(KEYS[3]) then
  local all = redis.call('HGETALL', KEYS[3])
  for i = 1, #all, 2 do
    local alive, rest = string.match(all[i + 1], '^(%d+)(:.*)$')
    redis.call('HSET', KEYS[3], all[i], string.format('%.0f', alive - d) .. rest)
  end
end
if life(KEYS[4]) then
  local all = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    redis.call('ZADD', KEYS[4], string.format('%.0f', all[i + 1] - d), all[i])
  end
end
return 1`)

// request is one that a client may send. It may arrive any number of times.
type request struct {
	op                    string
	owner                 string
	ttl, alive, tombstone time.Duration
	floor, token, ticket  int64
	seq                   int
	leave                 bool
	payload               string
}

// recordModel is what Redis should know. Moments are durations since the start of the case, tokens
// are µs of a clock that time moves on.
type recordModel struct {
	*rapid.T
	client *redis.Client
	keys   []string
	start  time.Time
	passed time.Duration // that shift has let pass

	exists, held    bool
	until           time.Duration // the end of the grant
	owner, previous string
	wasReleased     bool
	token, last     int64
	asked           int64 // the token of the last ask of the grant

	highest    int64 // the last token ever reserved, unless the record was deleted by hand
	promises   map[string]time.Duration
	tombstones map[string]time.Duration
	flagLost   bool // by a hand that deleted the record

	owners []string
	sent   []request
	// Before each request: what Redis has.
	flagged bool
	queue   []redis.Z
}

const noOwner = "00000000000000000000000000000000"

func (m *recordModel) now() time.Duration { return time.Since(m.start) + m.passed }
func (m *recordModel) isHeld() bool       { return m.exists && m.held && m.until > m.now() }
func (m *recordModel) hasTombstone(owner string) bool {
	return m.tombstones[owner] > m.now()
}

// clock is the server's, moved on.
func (m *recordModel) clock() int64 {
	at, err := m.client.Time(context.Background()).Result()
	m.must(err)
	return at.Add(m.passed).UnixMicro()
}

func (m *recordModel) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// observe reads what a request finds.
func (m *recordModel) observe() {
	ctx := context.Background()
	raw := m.client.Get(ctx, m.keys[0]).Val()
	m.flagged = len(raw) > 2 && (raw[2] == 'H' || raw[2] == 'R')
	m.queue = m.client.ZRangeWithScores(ctx, m.keys[1], 0, -1).Val()
	maps.DeleteFunc(m.promises, func(owner string, _ time.Duration) bool { return m.place(owner) < 0 })
}

func (m *recordModel) place(owner string) int {
	return slices.IndexFunc(m.queue, func(z redis.Z) bool { return z.Member == owner })
}

// head is the waiter to which a free lock goes before an owner with a ticket.
func (m *recordModel) head(owner string, ticket int64, gone string) string {
	for _, z := range m.queue {
		id := z.Member.(string)
		if id == owner || ticket > 0 && ticket < int64(z.Score) {
			return ""
		}
		if m.promises[id] > m.now() && id != gone && id != m.owner && id != m.previous {
			return id
		}
	}
	return ""
}

// mint checks a new block.
func (m *recordModel) mint(token, last, floor int64, before int64) {
	m.Helper()
	token, last = token+m.passed.Microseconds(), last+m.passed.Microseconds()
	if token <= m.highest {
		m.Fatalf("token %d after a block up to %d", token, m.highest)
	}
	if token < floor || token < before || token > max(m.last+1, floor, m.clock()) {
		m.Fatalf("token %d, want max(%d, %d, the clock %d)", token, m.last+1, floor, m.clock())
	}
	if last < token || last < before+driver.FenceBlock || last > max(token, m.clock()+driver.FenceBlock) {
		m.Fatalf("block %d…%d at %d", token, last, m.clock())
	}
	m.token, m.last, m.highest = token, last, last
}

// grant makes an owner the holder of a lock that is free.
func (m *recordModel) grant(owner string, left time.Duration) {
	m.Helper()
	if m.isHeld() {
		m.Fatal("S1: granted while another owner holds the lock")
	}
	m.wasReleased = m.exists && !m.held
	m.previous = m.owner
	if !m.exists {
		m.previous = noOwner
	}
	m.exists, m.held, m.owner, m.until, m.asked = true, true, owner, m.now()+left, 0
}

// shown is the token that waiters see.
func (m *recordModel) shown() int64 { return max(m.token, m.asked) }

// remembered reports whether the record refuses an owner that does not hold.
func (m *recordModel) remembered(owner string) bool {
	return m.exists && (owner == m.owner || owner == m.previous)
}

// written is the record in Redis.
func (m *recordModel) written() (record, time.Duration, bool) {
	ctx := context.Background()
	text, err := m.client.Get(ctx, m.keys[0]).Result()
	if err == redis.Nil {
		return record{}, 0, false
	}
	m.must(err)
	r, err := parseRecord(text)
	m.must(err)
	ttl := m.client.PTTL(ctx, m.keys[0]).Val()
	return r, ttl, true
}

// dump is all that Redis has.
func (m *recordModel) dump() string {
	ctx := context.Background()
	return fmt.Sprint(m.client.Get(ctx, m.keys[0]).Val(), m.client.ZRangeWithScores(ctx, m.keys[1], 0, -1).Val(),
		m.client.HGetAll(ctx, m.keys[2]).Val(), m.client.ZRangeWithScores(ctx, m.keys[3], 0, -1).Val())
}

// prolong makes a lock last for a TTL at least.
func (m *recordModel) prolong(ttl time.Duration) {
	if m.until == forever {
		m.until = 0
	}
	m.until = max(m.until, m.now()+ttl)
}

func (m *recordModel) real(token int64) int64 { return max(token-m.passed.Microseconds(), 0) }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// send runs the script of a request.
func (m *recordModel) send(q request) ([]any, error) {
	var s *redisconn.Script
	var args []any
	keys := m.keys
	switch q.op {
	case "acquire", "acquireMoving":
		s, args = acquireScript, []any{q.owner, millis(q.ttl), q.payload}
		if q.alive > 0 {
			args = append(args, millis(q.alive), q.seq, q.ticket, "")
		}
	case "extend":
		s, args = extendScript, []any{q.owner, millis(q.ttl)}
	case "release", "releaseMoving":
		s, args = releaseScript, []any{q.owner}
		if q.tombstone > 0 || q.leave {
			args = append(args, millis(q.tombstone), q.leave)
		}
	case "break":
		s, args = releaseScript, []any{"", 0, 0, m.real(q.token)}
	case "raise":
		s, args = raiseScript, []any{q.owner, m.real(q.floor)}
	case "ask":
		s, args = askScript, []any{m.real(q.token), q.payload, m.real(q.floor)}
	}
	if q.op != "acquire" && q.op != "release" && q.op != "break" {
		keys = keys[:1]
	}
	reply, err := s.Script.Run(context.Background(), m.client, keys, args...).Result()
	if err != nil {
		return nil, err
	}
	return parts(reply), nil
}

// deliver sends a request and judges the answer.
func (m *recordModel) deliver(q request) {
	m.Helper()
	m.observe()
	before := m.clock()
	reply, err := m.send(q)
	if err != nil {
		if q.floor > before+driver.FloorAhead.Microseconds() && strings.HasPrefix(err.Error(), "FLOOR") {
			return
		}
		m.Fatalf("%+v: %v", q, err)
	}
	if q.floor > m.clock()+driver.FloorAhead.Microseconds() {
		m.Fatalf("%+v is answered %v, with a floor more than a year ahead", q, reply)
	}
	m.judge(q, reply, before)
	m.compare(q)
}

// judge compares an answer with the model, and follows it.
func (m *recordModel) judge(q request, reply []any, before int64) {
	m.Helper()
	name := reply[0].(string)
	want := func(names ...string) {
		m.Helper()
		if !slices.Contains(names, name) {
			m.Fatalf("%+v is answered %v, want %q", q, reply, names)
		}
	}
	same := func() {
		m.Helper()
		if reply[1] != m.real(m.token) || reply[2] != m.real(m.last) {
			m.Fatalf("%+v is answered %v, want %d…%d", q, reply, m.token, m.last)
		}
	}
	mine := m.isHeld() && m.owner == q.owner
	switch q.op {
	case "acquire", "acquireMoving":
		whole := q.op == "acquire" && (q.alive > 0 || m.flagged)
		switch {
		case mine:
			want("granted")
			same()
			m.prolong(q.ttl)
			return
		case m.remembered(q.owner) || whole && m.hasTombstone(q.owner):
			want("cancelled")
			return
		}
		if !m.isHeld() {
			to := ""
			if whole {
				to = m.head(q.owner, q.ticket, "")
			}
			if to == "" {
				want("granted")
				m.mint(reply[1].(int64), reply[2].(int64), 0, before)
				m.grant(q.owner, q.ttl)
				return
			}
			m.handOff(to, before)
		}
		want("busy", "full")
		if name == "full" {
			m.Fatal("full")
		}
		if shown, err := parseRecord(reply[1].(string)); err != nil || shown.owner != m.owner {
			m.Fatalf("%+v is shown %+v, %v; want the holder %s", q, shown, err, m.owner)
		}
		ticket := reply[6].(int64)
		if q.alive == 0 || !whole {
			if ticket != 0 {
				m.Fatalf("%+v has the ticket %d", q, ticket)
			}
			return
		}
		at := m.place(q.owner)
		last := int64(0)
		if len(m.queue) > 0 {
			last = int64(m.queue[len(m.queue)-1].Score)
		}
		switch {
		case at >= 0 && ticket != int64(m.queue[at].Score):
			m.Fatalf("%+v has the ticket %d, and had %v", q, ticket, m.queue[at])
		case at < 0 && q.ticket > 0 && ticket != q.ticket:
			m.Fatalf("%+v has the ticket %d", q, ticket)
		case at < 0 && q.ticket == 0 && ticket <= last && m.head("", 0, "") != "":
			m.Fatalf("%+v has the ticket %d, before %d", q, ticket, last)
		}
		m.promises[q.owner] = max(m.promises[q.owner], m.now()+q.alive)
		if reply[5].(int64) < 1 {
			m.Fatalf("%+v waits, and %v wait", q, reply[5])
		}
	case "extend", "raise":
		if !mine {
			want("not held")
			return
		}
		if m.asked > 0 && q.op == "extend" {
			want("asked")
		} else {
			want("held")
		}
		switch {
		case q.op == "extend":
			m.prolong(q.ttl)
		case m.token >= q.floor:
			same()
		default:
			m.mint(reply[1].(int64), reply[2].(int64), q.floor, before)
		}
	case "ask":
		switch {
		case !m.isHeld():
			want("not asked")
		case q.token == m.shown() || q.payload != "":
			want("asked")
		default:
			want("not asked")
			if reply[1] != m.real(m.shown()) {
				m.Fatalf("%+v is answered %v, want the shown token %d", q, reply, m.shown())
			}
			return
		}
		token := reply[1].(int64) + m.passed.Microseconds()
		if token <= m.highest || token < q.floor || token < before || token > max(m.last+1, q.floor, m.clock()) {
			m.Fatalf("%+v is answered %v, want max(%d, %d, the clock %d)", q, reply, m.last+1, q.floor, m.clock())
		}
		m.last, m.highest = token, token
		if m.isHeld() {
			m.asked = token
		} else if m.until = m.now(); !m.exists {
			m.reset()
			m.exists, m.last = true, token
		}
	case "break":
		if !m.isHeld() || q.token != m.shown() {
			want("not held")
			return
		}
		want("released")
		m.held = false
		m.handOff(m.head("", 0, ""), before)
	case "release", "releaseMoving":
		plain := q.tombstone == 0 && !q.leave
		looks := q.op == "release" && (m.flagged || !m.exists || !m.held || !plain) // or the short way is taken
		if mine || m.exists && (m.owner == q.owner && !m.held || m.previous == q.owner && m.wasReleased) {
			want("released")
		} else {
			want("not held")
		}
		if mine {
			m.held = false
		}
		gone := ""
		if q.leave || q.tombstone > 0 {
			gone = q.owner
		}
		if looks && !m.isHeld() {
			m.handOff(m.head("", 0, gone), before)
		}
		if gone != "" {
			delete(m.promises, gone)
		}
		if q.tombstone > 0 {
			m.tombstones[q.owner] = max(m.tombstones[q.owner], m.now()+q.tombstone)
			if !m.exists {
				m.reset()
				m.exists = true
			}
		}
	}
}

// handOff follows the handoff to a waiter, or to none. The new tokens stand in the record.
func (m *recordModel) handOff(to string, before int64) {
	m.Helper()
	if to == "" {
		return
	}
	r, _, _ := m.written()
	if !r.held || r.owner != to {
		m.Fatalf("the lock is free, and the record shows %+v; want a handoff to %s", r, to)
	}
	m.mint(r.token, r.last, 0, before)
	m.grant(to, max(m.promises[to]-m.now(), time.Second))
}

// compare checks the record, its flag and its life.
func (m *recordModel) compare(q request) {
	m.Helper()
	ctx := context.Background()
	r, ttl, there := m.written()
	if there != m.exists {
		m.Fatalf("after %+v the record exists: %t, want %t", q, there, m.exists)
	}
	var life time.Duration
	for _, until := range m.tombstones {
		life = max(life, until-m.now())
	}
	m.observe()
	waits := m.head("", 0, "") != ""
	if there && r.flagged {
		m.flagLost = false
	}
	if (waits || life > 0) && !m.flagLost && !(there && r.flagged) {
		m.Fatalf("after %+v a queue or a tombstone exists, and the record is not flagged: %+v", q, r)
	}
	if life > 0 && !m.flagLost && ttl >= 0 && ttl < life-5*time.Second {
		m.Fatalf("after %+v the record lives for %s, and a tombstone for %s", q, ttl, life)
	}
	if there {
		var shown payload
		m.must(json.Unmarshal([]byte(cmp.Or(r.payload, "{}")), &shown))
		wasReleased := m.client.GetRange(ctx, m.keys[0], 3, 3).Val() == "!"
		if r.held != m.held || r.owner != m.owner || r.previous != m.previous || m.previous != noOwner && wasReleased != m.wasReleased ||
			r.token != m.real(m.token) || r.last != m.real(m.last) || m.isHeld() && shown.Asked != m.real(m.asked) {
			m.Fatalf("after %+v the record is %+v, want %+v", q, r, *m)
		}
		if m.held {
			left := ttl - r.keep
			want := m.until - m.now()
			if m.until == forever {
				if ttl >= 0 {
					m.Fatalf("after %+v the record has a TTL", q)
				}
			} else if d := left - want; ttl < 0 || d > 8*time.Second || d < -8*time.Second {
				m.Fatalf("after %+v %s are left, want %s", q, left, want)
			}
		}
		if end := time.Duration(m.last-m.clock())*time.Microsecond + driver.FenceKeep; ttl >= 0 && m.highest > 0 && m.until < m.now() == false && ttl < end-5*time.Second {
			m.Fatalf("after %+v the record lives for %s, and has to for %s", q, ttl, end)
		}
		if ttl < 0 && !(m.held && m.until == forever) {
			m.Fatalf("after %+v the record has no TTL", q)
		}
	}
	for _, z := range m.client.ZRangeWithScores(ctx, m.keys[3], 0, -1).Val() {
		left := time.Duration(int64(z.Score)-time.Now().UnixMilli()) * time.Millisecond
		if want := m.tombstones[z.Member.(string)] - m.now(); left > 0 && (left-want).Abs() > 8*time.Second {
			m.Fatalf("after %+v a tombstone ends in %s, want %s", q, left, want)
		}
	}
	for _, key := range m.client.Keys(ctx, "*").Val() {
		if !slices.Contains(m.keys, key) {
			m.Fatalf("after %+v there is a key %q", q, key)
		}
		if key != m.keys[0] && m.client.PTTL(ctx, key).Val() < 0 {
			m.Fatalf("after %+v %q has no TTL", q, key)
		}
	}
}

// draw makes a request.
func (m *recordModel) draw() request {
	t := m.T
	if len(m.owners) == 0 || chance(t, "new owner", 2) == 1 {
		m.owners = append(m.owners, fmt.Sprintf("%x", md5.Sum([]byte(strconv.Itoa(len(m.owners))))))
	}
	recent := m.owners[max(0, len(m.owners)-5):]
	q := request{
		op: oneOf(t, "op", []string{
			"acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquireMoving",
			"release", "release", "releaseMoving", "extend", "raise", "releaseMoving", "break", "ask",
		}),
		owner:   oneOf(t, "owner", recent),
		ttl:     oneOf(t, "ttl", []time.Duration{30, 70, 110, 10, 100_010}) * time.Second,
		payload: oneOf(t, "payload", []string{`{"m":{"work":"x"}}`, `{"h":"` + strings.Repeat("y", 80) + `","m":{"work":"x"}}`}),
	}
	// The present holder has more to do than others.
	if m.isHeld() && m.until != forever && chance(t, "holder", 3) == 2 {
		q.owner = m.owner
	}
	if len(m.queue) > 0 && chance(t, "waiter", 6) == 5 {
		q.owner = oneOf(t, "which", m.queue).Member.(string)
	}
	switch q.op {
	case "raise":
		ahead := oneOf(t, "floor", []time.Duration{-time.Hour, 0, time.Minute, 50 * time.Hour, 400 * 24 * time.Hour})
		q.floor = m.clock() + ahead.Microseconds()
	case "acquire", "acquireMoving":
		if chance(t, "waits", 4) < 3 {
			q.alive = oneOf(t, "alive", []time.Duration{70, 110, 30, 10}) * time.Second
			q.seq = len(m.sent)
			if len(m.queue) > 0 && chance(t, "ticket", 3) == 2 {
				// of a waiter that had left
				q.ticket = int64(m.queue[0].Score) + int64(rapid.IntRange(-1, 1).Draw(t, "offset"))
				if slices.ContainsFunc(m.queue, func(z redis.Z) bool { return int64(z.Score) == q.ticket }) {
					q.ticket = 0
				}
			}
		}
	case "release":
		if chance(t, "tombstone", 4) == 3 {
			q.tombstone = oneOf(t, "until", []time.Duration{130, 130, 150_010}) * time.Second
		}
		q.leave = rapid.Bool().Draw(t, "leave")
	case "break", "ask":
		q.token = m.shown() + int64(oneOf(t, "token", []int{-1, 0, 0, 5}))
		q.owner, q.payload = "", ""
		if !m.exists {
			q.token = 1
		}
		if q.op == "ask" {
			q.payload = oneOf(t, "work", []string{"", "", "x"})
			q.floor = m.clock() + oneOf(t, "floor", []time.Duration{-time.Hour, 0, 50 * time.Hour, 400 * 24 * time.Hour}).Microseconds()
		}
	}
	return q
}

// pass lets time pass.
func (m *recordModel) pass(d time.Duration) {
	m.must(shift.Run(context.Background(), m.client, m.keys, millis(d)).Err())
	m.passed += d
	if _, _, there := m.written(); m.exists && !there {
		for owner := range m.tombstones {
			if m.hasTombstone(owner) && !m.flagLost {
				m.Fatal("the record has gone before a tombstone")
			}
		}
		if m.isHeld() {
			m.Fatal("the record of a held lock has gone")
		}
		m.reset()
	}
}

func (m *recordModel) reset() {
	m.exists, m.held, m.owner, m.previous, m.wasReleased, m.token, m.last, m.asked, m.until = false, false, noOwner, noOwner, false, 0, 0, 0, 0
}

// chance draws a number below n, each as likely as another; rapid's own choices prefer the first.
func chance(t *rapid.T, label string, n int) int {
	drawn := 0
	for range 8 {
		drawn *= 2
		if rapid.Bool().Draw(t, label) {
			drawn++
		}
	}
	return drawn * n / 256
}

func oneOf[T any](t *rapid.T, label string, choices []T) T {
	return choices[chance(t, label, len(choices))]
}

func checkRecord(t *rapid.T, client *redis.Client) {
	ctx := context.Background()
	m := &recordModel{T: t, client: client, keys: keysOf(driver.Name{Namespace: "n", Key: "k"}).all(), start: time.Now(),
		promises: make(map[string]time.Duration), tombstones: make(map[string]time.Duration)}
	m.reset()
	m.must(client.FlushDB(ctx).Err())
	set := func(args ...any) { m.must(client.Do(ctx, args...).Err()) }
	var do map[string]func()
	do = map[string]func(){
		"request": func() {
			q := m.draw()
			if q.op != "extend" {
				m.sent = append(m.sent, q)
			}
			m.deliver(q)
		},
		"copy": func() {
			if len(m.sent) == 0 {
				return
			}
			recent := m.sent[max(0, len(m.sent)-12):]
			m.deliver(oneOf(m.T, "copy", recent))
		},
		"time": func() {
			steps := oneOf(m.T, "steps", []int{1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 7, 7, 3600 * 25 / 20, 3600 * 30 / 20})
			m.pass(time.Duration(steps) * modelStep)
		},
		"expire": func() { // of a lock alone, as after an extend to a short time
			if r, _, there := m.written(); there && m.isHeld() {
				set("PEXPIRE", m.keys[0], r.keep.Milliseconds())
				m.until = m.now()
			}
		},
		"ghost": func() { // a waiter is granted the lock, and ends, where its queue cannot be reached
			m.observe()
			if len(m.queue) == 0 {
				return
			}
			do["expire"]()
			ends := []string{oneOf(m.T, "waiter", m.queue).Member.(string)}
			if chance(m.T, "two", 2) == 1 {
				ends = append(ends, fmt.Sprintf("%x", md5.Sum([]byte("other"+strconv.Itoa(len(m.sent))))))
			}
			for _, owner := range ends {
				m.deliver(request{op: "acquireMoving", owner: owner, ttl: 70 * time.Second, payload: "{}"})
				m.deliver(request{op: "releaseMoving", owner: owner})
			}
		},
		"replica": func() {
			q := m.draw()
			if len(m.sent) > 0 && rapid.Bool().Draw(m.T, "copy") {
				q = oneOf(m.T, "of", m.sent)
			}
			set("REPLICAOF", "127.0.0.1", "1")
			defer set("REPLICAOF", "NO", "ONE")
			before := m.dump()
			reply, err := m.send(q)
			if err == nil || !strings.Contains(err.Error(), "READONLY") && !strings.Contains(err.Error(), "FLOOR") && !strings.Contains(err.Error(), "FENCE") {
				m.Fatalf("%+v is answered %v, %v on a replica", q, reply, err)
			}
			if m.dump() != before {
				m.Fatalf("%+v is refused with %v, and has written", q, err)
			}
		},
		"memory": func() {
			q := m.draw()
			set("CONFIG", "SET", "maxmemory", "1")
			defer set("CONFIG", "SET", "maxmemory", "0")
			if !strings.HasPrefix(q.op, "acquire") {
				m.deliver(q) // without an error
				return
			}
			m.observe()
			before, now := m.dump(), m.clock()
			reply, err := m.send(q)
			switch {
			case err != nil && m.dump() != before:
				m.Fatalf("%+v: %v, and has written", q, err)
			case err != nil && !strings.Contains(err.Error(), "OOM") && !strings.Contains(err.Error(), "FLOOR"):
				m.Fatalf("%+v: %v", q, err)
			case err == nil && reply[0] == "granted" && !(m.isHeld() && m.owner == q.owner):
				m.Fatalf("%+v is granted without memory", q)
			case err == nil:
				m.judge(q, reply, now)
				m.compare(q)
			}
		},
		"hand": func() {
			switch chance(m.T, "what", 16) {
			case 15, 12: // the record
				m.observe()
				set("DEL", m.keys[0])
				m.reset()
				m.highest, m.flagLost = 0, true
			case 14:
				set("DEL", m.keys[1])
			case 13:
				set("DEL", m.keys[2])
				clear(m.promises)
			case 11:
				set("DEL", m.keys[3])
				clear(m.tombstones)
			case 10:
				if m.isHeld() {
					set("PERSIST", m.keys[0])
					m.until = forever
				}
			}
		},
	}
	often := []string{
		"request", "request", "request", "request", "request", "request", "request", "request",
		"request", "copy", "copy", "time", "expire", "memory", "replica", "hand", "ghost",
	}
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		m.T = t
		do[oneOf(t, "step", often)]()
	}})
}

// The scripts keep the invariants of the record, whatever arrives, and however late.
func TestRecord_S1_scriptsFollowTheModel(t *testing.T) {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	client.ConfigSet(t.Context(), "loglevel", "warning") // a small log
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(pace.Rounds(500)), "rapid.steps": "60", "rapid.shrinktime": "3s"} {
		if setting := flag.Lookup(name); setting.Value.String() == setting.DefValue {
			if err := setting.Value.Set(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) { checkRecord(t, client) })
}
