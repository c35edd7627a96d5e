package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// What other programs do on the same servers.
var foreignFaults = []*fault{
	{name: "foreign data at a lock", on: redises, of: ofServer, barred: true, short: 200 * ms, long: 800 * ms, strike: occupyLock},
	{name: "foreign data at a session", on: redises, of: ofServer, short: 200 * ms, long: 800 * ms, strike: occupySession},
	{name: "broken entry", on: redises, of: ofServer, strike: breakEntry},
}

// sessionKeyOf is where Redis keeps a session.
func sessionKeyOf(session string) string { return "session:" + redislock.HashTag(session) + "log" }

// occupyLock puts data of another program at the key of a new lock, and has all workers ask for
// that lock. The lock may not be granted, and the data may not change, until the data is taken
// away. Then a worker gets the lock within a TTL and a second.
func occupyLock(c *campaign, h *hit) {
	key := fmt.Sprintf("foreign/%d%s", h.n, strangeEnd(h.n, 0))
	c.occupy(h, key, lockKey(key), func(there span) {
		c.register.untouched(key, there)
		c.await(h, 0, []string{key}, c.plan.bar())
	})
}

// occupySession does the same to a new session. No turn of it may be stored until the data is taken
// away. The session is judged with the others of its epoch.
func occupySession(c *campaign, h *hit) {
	key := fmt.Sprintf("e%d/talk-foreign-%d%s", epoch(now(), c.start, c.plan.rotate), h.n, strangeEnd(h.n, 0))
	c.occupy(h, key, sessionKeyOf(key), func(there span) { c.ledger.occupied(key, there) })
}

// occupy puts data of another program somewhere and has all workers work with a key. Just before it
// is taken away, over is told when it has been there.
func (c *campaign) occupy(h *hit, key, at string, over func(there span)) {
	client := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	switch h.rng.IntN(3) {
	case 0:
		err = client.Set(ctx, at, "x", 0).Err()
	case 1:
		err = client.RPush(ctx, at, "x").Err()
	default:
		err = client.HSet(ctx, at, "x", "y").Err()
	}
	before := ""
	if err == nil {
		before, err = client.Dump(ctx, at).Result()
	}
	from := now()
	h.restore = func() {
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err == nil {
			after, err := client.Dump(ctx, at).Result()
			if there := (span{from, now()}); err == nil || errors.Is(err, redis.Nil) {
				c.compare(key, before, after, there)
				over(there)
			}
		}
		servers.Within(10*time.Second, func() bool {
			err = client.Del(ctx, at).Err()
			return err == nil
		})
		if err != nil {
			c.t.Errorf("taking data away: %v", err)
		}
	}
	if err != nil {
		c.misses(h, "its data cannot be put there: %v", err)
		return
	}
	met := false
	for _, s := range c.slots {
		if w := s.now(); w != nil {
			w.tell(order{Do: doMeet, Key: key})
			met = true
		}
	}
	if !met {
		c.misses(h, "there is no worker")
	}
}

// compare judges the data of another program after the fault. The data must be unchanged, unless
// its server has lost it.
func (c *campaign) compare(key, before, after string, there span) {
	if after != before {
		c.blame(&finding{kind: "foreign", key: key, at: now(), asked: there.From, answered: there.From, text: fmt.Sprintf(
			"%q: the data of another program was %q, and is %q", key, before, after)})
	}
}

// untouched checks that a lock was not granted while data of another program was at its key.
func (r *register) untouched(key string, there span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.place(key).grants {
		if g.got < there.Until {
			r.c.blame(&finding{kind: "foreign", key: key, at: g.got, asked: there.From, answered: there.From, text: fmt.Sprintf(
				"%q: run %d was granted the lock while data of another program was there", key, g.run)})
		}
	}
}

// occupied notes when data of another program was where a session is.
func (l *ledger) occupied(session string, s span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.foreign[session]
	f.occupied = &s
	l.foreign[session] = f
}

// foreign is what other programs have done to a session.
type foreign struct {
	occupied *span
	entries  []entry
	unsure   bool // an entry may have been put there, or not
}

// entry is an entry of another program, and when it was put there.
type entry struct {
	place           string
	asked, answered int64
}

// brokenEntries are some that no Save has made.
var brokenEntries = [][]string{
	{"op", "x"}, {"op", "x", "m", ".q"}, {"m", ".q", "m", ".a"}, {"op", "x", "m", "q", "m", ""},
	{"role", "user", "content", "hello"}, {"\x00", "\xff"}, {"mark", "x"}, {"clear", "x"},
	{"mark", "", "more", "x"}, {"op", "x", "m", ".q", "id", "x"},
}

// breakEntry adds an entry of another program to the end of a session in use. Each later Load skips the
// entry, logs its place, and returns all others.
func breakEntry(c *campaign, h *hit) {
	session := talkOf(epoch(now(), c.start, c.plan.rotate), h.victim%talks)
	client := c.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e := entry{asked: now()}
	var err error
	e.place, err = client.XAdd(ctx, &redis.XAddArgs{
		Stream: sessionKeyOf(session), NoMkStream: true, Values: brokenEntries[h.rng.IntN(len(brokenEntries))],
	}).Result()
	e.answered = now()
	if errors.Is(err, redis.Nil) {
		c.misses(h, "%s is not there", session)
		return
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	f := c.ledger.foreign[session]
	if err != nil {
		f.unsure = true
		c.misses(h, "it is not known whether the entry is there: %v", err)
	} else {
		f.entries = append(f.entries, e)
	}
	c.ledger.foreign[session] = f
}

// strangers judges the entries of other programs that a session shows: the places of all of them,
// except those that the servers have lost. While such data was at the key of the session, nothing
// was stored.
func (v *verdict) strangers() {
	blame := func(at int64, format string, args ...any) { // losses of the servers are looked at below
		text := v.session + ": " + fmt.Sprintf(format, args...)
		v.c.blame(&finding{kind: "foreign", key: v.session, at: at, never: true, text: text})
	}
	for _, e := range v.foreign.entries {
		if slices.Contains(v.named, e.place) {
			continue
		}
		if f := v.c.windows.forgot(v.session, positionOf(e.place), e.asked, e.answered); f != nil {
			v.excuse("foreign", f)
			continue
		}
		blame(e.answered, "the entry of another program at %s is not named, but %q", e.place, v.named)
	}
	for i, place := range v.named {
		known := slices.ContainsFunc(v.foreign.entries, func(e entry) bool { return e.place == place })
		if !known && !v.foreign.unsure || slices.Contains(v.named[:i], place) {
			blame(now(), "a Load calls the entry at %s broken, which no other program has put there, or twice", place)
		}
	}
	there := v.foreign.occupied
	if there == nil || v.c.windows.forgot(v.session, position{}, there.From, there.From) != nil {
		return
	}
	for _, a := range v.attempts {
		if a.acknowledged() && a.Sent > there.From && a.Done < there.Until {
			v.blame("foreign", a.Done, a.Turn, "turn %d was acknowledged while data of another program was there", a.Turn)
		}
	}
}
