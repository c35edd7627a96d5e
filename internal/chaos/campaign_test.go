package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// plan is what a campaign is to do.
type plan struct {
	on                                             string
	instances, sessions, turns, strikes, failovers int
	ttl, cut, limit                                time.Duration
	server                                         []string
	asMaster                                       bool
	broken                                         string
}

// campaign is the load balancer and the ledger. All of it belongs to one goroutine.
type campaign struct {
	t        *testing.T
	plan     plan
	service  *service
	in       chan said
	slots    []slot
	sessions []*session
	units    []*unit // that are not answered, or wait for something
	all      []*unit
	attempts []*attempt // by their task's ID
	issued   int        // turns
	strikes  []strike   // to come
	struck   int
	past     []pastWrite
	waits    []*recovery

	failing   chan failover // nil: none is under way
	frozen    bool          // all instances are stopped
	still     chan stillness
	failovers []failover
	tally     tally
	findings  []finding
	start     int64
	hangingUp sync.WaitGroup
}

// slot is the place of an instance, which another run takes when one has died.
type slot struct {
	child *child
	at    time.Time // when to start the next, if there is none
}

// stillness asks for all instances to be stopped, or continued.
type stillness struct {
	on   bool
	done chan struct{}
}

// depth is how many messages of one session wait for their answers at once.
const depth = 3

func newCampaign(t *testing.T, p plan) *campaign {
	c := &campaign{
		t: t, plan: p, service: topologies[p.on](t, p.server...), in: make(chan said, 1024), slots: make([]slot, p.instances),
		still: make(chan stillness), tally: newTally(),
	}
	for i := range p.sessions {
		c.sessions = append(c.sessions, &session{name: fmt.Sprintf("talk-%02d", i)})
	}
	for i := range max(2, p.sessions/5) {
		c.sessions = append(c.sessions, &session{name: fmt.Sprintf("notes-%02d", i), notes: true})
	}
	c.strikes = strikes(p.strikes)
	t.Cleanup(c.end)
	return c
}

// run returns when all is answered and nobody works any more.
func (c *campaign) run() {
	c.start = now()
	c.service.known = c.service.state()
	deadline := time.Now().Add(c.plan.limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !c.finished() {
		select {
		case s := <-c.in:
			c.hear(s)
			for range len(c.in) { // the rest can wait
				c.hear(<-c.in)
			}
		case f, ok := <-c.failing:
			c.failing = nil
			if !ok {
				c.t.Fatal("a fail-over failed")
			}
			c.failovers = append(c.failovers, f)
			if f.unasked {
				c.t.Fatal(replaced)
			}
			c.tally.failovers = max(c.tally.failovers, f.took)
		case s := <-c.still:
			c.stand(s)
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("after %s: %d turns are answered, %d messages are not, %d strikes to come\n%v", c.plan.limit, c.tally.answered, len(c.units),
				len(c.strikes), c.sessions)
		}
		c.keepInstances()
		c.wake()
		c.keepAnswering()
		c.issue()
		c.failOver()
		c.hangUp()
	}
	c.hangingUp.Wait()
	if !c.service.undisturbed() {
		c.t.Fatal(replaced)
	}
}

func (c *campaign) finished() bool {
	return c.issued >= c.plan.turns && len(c.units) == 0 && len(c.strikes) == 0 && c.failing == nil &&
		len(c.failovers) == c.plan.failovers && !slices.ContainsFunc(c.slots, func(s slot) bool { return s.child != nil && !s.child.stopped.IsZero() })
}

// replaced is why a campaign ends without a verdict.
const replaced = "a master was replaced that was alive: what it acknowledged since is gone, and nobody knows which turns that were; " +
	"the machine is too busy for the time-outs of the servers"

// sessionNames are those of all sessions.
func (c *campaign) sessionNames() (names []string) {
	for _, s := range c.sessions {
		names = append(names, s.name)
	}
	return names
}

// issue hands out new messages.
func (c *campaign) issue() {
	for _, s := range c.shuffled() {
		for s.unanswered < depth && c.mayIssue(s) {
			u := &unit{session: s, turn: s.given, kind: aTurn, name: fmt.Sprintf("%s/%d", s.name, s.given)}
			switch {
			case s.notes:
				c.note(u)
			case rand.N(5) == 0:
				u.name = "" // and so it is never handed out again
			}
			if c.deliver(u, first) == nil {
				return
			}
			s.given++
			s.unanswered++
			c.units, c.all = append(c.units, u), append(c.all, u)
			if !s.notes {
				c.issued++
			}
			if u.name != "" && rand.N(20) == 0 {
				c.deliver(u, twice)
			}
		}
	}
}

// mayIssue keeps the campaign from running ahead of its strikes, and the notes from running ahead of the campaign.
func (c *campaign) mayIssue(s *session) bool {
	aimed, over := c.aimed(), c.issued >= c.plan.turns
	switch {
	case s.notes && s.stopped != nil:
		return false
	case over:
		return len(c.strikes) > 0 && aimed < c.atOnce()
	case s.notes:
		return s.given*c.plan.sessions < c.issued
	}
	return aimed < c.atOnce() || c.issued <= c.dueAt(c.struck+aimed+1)
}

// note makes a message one of a session of notes.
func (c *campaign) note(u *unit) {
	switch n := rand.N(20); {
	case n < 1:
		u.kind = aClear
	case n < 2:
		u.kind = aTurnClear
	case n < 10:
		u.kind = aTurnSaving
	default:
		u.kind = aSave
		if n < 15 {
			u.name = ""
		}
	}
}

func (c *campaign) shuffled() []*session {
	order := slices.Clone(c.sessions)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// deliver hands a message to an instance, another one than those that have it. It returns nil if there is none.
func (c *campaign) deliver(u *unit, why reason) *attempt {
	var free, fresh []*child
	for _, s := range c.slots {
		if s.child == nil || !s.child.available() {
			continue
		}
		free = append(free, s.child)
		if !slices.ContainsFunc(u.attempts, func(a *attempt) bool { return a.by == s.child }) {
			fresh = append(fresh, s.child)
		}
	}
	if len(fresh) > 0 {
		free = fresh
	}
	if len(free) == 0 {
		return nil
	}
	by := free[rand.N(len(free))]
	a := &attempt{of: u, by: by, begun: now(), task: task{
		ID: len(c.attempts), Kind: u.kind, Session: u.session.name, Turn: u.turn, Name: u.name,
		Blind: rand.N(2) == 0, Hasty: rand.N(30) == 0,
		Model: time.Millisecond + rand.N(4*time.Millisecond), Limit: 15 * time.Second,
	}}
	switch {
	case why == onPause:
		a.Model = slow
	case rand.N(50) == 0:
		a.Limit = rand.N(30 * time.Millisecond)
	}
	c.aim(a)
	c.attempts = append(c.attempts, a)
	u.attempts = append(u.attempts, a)
	u.open++
	by.open[a.ID] = a
	c.tally.handed[why]++
	for _, w := range c.waits {
		if w.since == 0 && w.of.of.session == u.session {
			w.since = a.begun
		}
	}
	by.tell(&a.task)
	return a
}

// slow is how long a model thinks if a stopped holder of its session is to write meanwhile.
const slow = 300 * time.Millisecond

// hush is for how long an instance may say nothing before its message is handed to another.
func (c *campaign) hush() time.Duration { return c.plan.ttl + rand.N(c.plan.ttl) }

// keepAnswering hands messages out again.
func (c *campaign) keepAnswering() {
	now := time.Now()
	c.units = slices.DeleteFunc(c.units, func(u *unit) bool {
		switch {
		case u.answered && !u.again.IsZero():
			if now.After(u.again) && c.deliver(u, afterAck) != nil {
				u.again = time.Time{}
			}
		case u.answered:
			return u.open == 0
		case u.retry.IsZero() || now.Before(u.retry) || u.session.stopped != nil && !u.behind:
		case u.open == 0:
			why := afterFail
			if u.attempts[len(u.attempts)-1].died {
				why = afterDead
			}
			if c.deliver(u, why) != nil {
				u.retry = now.Add(c.hush())
			}
		case u.open < 3 && u.name != "":
			if c.deliver(u, afterHush) != nil {
				u.retry = now.Add(c.hush())
			}
		}
		if u.retry.IsZero() {
			u.retry = now.Add(c.hush())
		}
		return false
	})
}

// hear takes what an instance says.
func (c *campaign) hear(s said) {
	if s.report == nil {
		c.died(s.by, s.err)
		return
	}
	if s.report.Task >= len(c.attempts) {
		c.t.Fatalf("a report of task %d, which there is not", s.report.Task)
	}
	a := c.attempts[s.report.Task]
	switch r := s.report; r.Word {
	case loaded:
		a.loaded = r
		a.of.session.holds = append(a.of.session.holds, hold{a, r.Fence, r.Began, r.Time})
		c.recovered(a, r.Began)
	case reached:
		c.strike(a)
	case written:
		c.past = append(c.past, pastWrite{a, *r})
	case done:
		a.done = r
		if a.acknowledged() && (a.Kind == aClear || a.Kind == aTurnClear) {
			a.of.session.holds = append(a.of.session.holds, hold{a, r.Fence, r.Wrote, r.Time})
		}
		c.ended(a)
	}
}

// ended is for an attempt that has ended, or whose instance has.
func (c *campaign) ended(a *attempt) {
	a.ended = now()
	u := a.of
	delete(a.by.open, a.ID)
	u.open--
	if a.by.target == a && !a.struck { // it did not come so far
		c.strikes = append(c.strikes, *a.Strike)
	}
	if a.by.target == a {
		a.by.target = nil
	}
	c.tally.endings[a.outcome()]++
	if a.done != nil {
		c.tally.repeated += a.done.Repeated
		if a.done.End == wrong {
			c.blame(failure, "%s in %s, turn %d: an error that should not be: %s", a.Kind, a.Session, a.Turn, a.done.Error)
		}
		if a.struck && a.Strike.Pause && a.Strike.Then == checked && a.done.End == held {
			c.tally.checked++
		}
	}
	switch {
	case u.answered:
	case a.acknowledged() || u.name == "" || c.hopeless(u):
		u.answered = true
		u.session.unanswered--
		switch {
		case u.kind != aTurn:
		case a.acknowledged():
			c.tally.answered++
		default:
			c.issued-- // another one takes its place
			c.tally.givenUp++
		}
		if u.name != "" && rand.N(50) == 0 {
			u.again = time.Now().Add(rand.N(3 * time.Second))
		}
	case u.open == 0 && a.died:
		u.retry = time.Now()
	case u.open == 0:
		u.retry = time.Now().Add(rand.N(50 * time.Millisecond))
	}
}

// hopeless reports whether a message is given up: an instance has said that it can never be answered, or too many have tried.
func (c *campaign) hopeless(u *unit) bool {
	const most = 50
	if len(u.attempts) >= most {
		c.blame(failure, "%s: turn %d was tried %d times, and not answered%s", u.session.name, u.turn, most, c.story(u.session, u.turn))
	}
	return len(u.attempts) >= most || slices.ContainsFunc(u.attempts, func(a *attempt) bool { return a.outcome() == wrong && a.done != nil })
}
