package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// strikes are kills and pauses, as many of the one as of the other, over all moments; a fifth of them is for sessions of notes.
func strikes(n int) []strike {
	all := make([]strike, n)
	manners := []manner{unasked, nameless, checked}
	for i := range all {
		all[i] = strike{
			At: moments[i/2%len(moments)], Pause: i%2 == 1, Then: manners[(i/2+i/2/len(moments))%len(manners)],
			Notes: i/2%5 == 4,
		}
	}
	rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// atOnce is how many instances may be struck at the same time.
func (c *campaign) atOnce() int { return c.plan.instances / 2 }

// dueAt is after how many turns strike n comes.
func (c *campaign) dueAt(n int) int {
	if c.plan.strikes == 0 {
		return c.plan.turns
	}
	return n * c.plan.turns * 19 / 20 / c.plan.strikes
}

// aimed is how many instances are struck now, or about to be.
func (c *campaign) aimed() (n int) {
	for _, s := range c.slots {
		if s.child == nil || s.child.target != nil {
			n++
		}
	}
	return n
}

// aim makes an attempt the one in which its instance is struck, if that is due.
func (c *campaign) aim(a *attempt) {
	aimed := c.aimed()
	if len(c.strikes) == 0 || a.by.target != nil || aimed >= c.atOnce() || c.tally.answered < c.dueAt(c.struck+aimed) {
		return
	}
	i := slices.IndexFunc(c.strikes, func(s strike) bool {
		return s.Notes == a.of.session.notes && (s.At == aroundSave || a.Kind != aSave && a.Kind != aClear)
	})
	if i < 0 || a.Limit < time.Second {
		return
	}
	next := c.strikes[i]
	c.strikes = slices.Delete(c.strikes, i, i+1)
	a.Strike = &next
	a.by.target = a
}

// strike kills or stops an instance that has come to the moment for that.
func (c *campaign) strike(a *attempt) {
	if !a.by.available() || a.struck {
		return
	}
	if a.Strike.At == aroundSave {
		for range rand.N(400) { // some microseconds, in which the Save is under way
			_ = time.Now()
		}
	}
	a.struck = true
	c.struck++
	at := now()
	if a.Strike.Pause {
		a.by.stop()
		a.by.stopped = time.Now()
		c.tally.pauses[a.Strike.At]++
		switch s := a.of.session; {
		case s.notes && s.stopped == nil:
			s.stopped = a.by
			a.rival = c.clearBehind(s)
		case a.Name != "" && rand.N(2) == 0:
			a.rival = c.deliver(a.of, onPause)
		}
	} else {
		a.by.kill()
		a.by.killed = true
		c.tally.kills[a.Strike.At]++
	}
	c.struckNow(a, at)
}

// struckNow begins to wait for the session to go on.
func (c *campaign) struckNow(a *attempt, at int64) {
	for _, w := range c.waits {
		if w.of.of.session.openAt(a.by) > 0 {
			w.alone = false
		}
	}
	if a.loadedAt() == 0 && a.Strike.At != beforeLoad || a.Strike.At == beforeAck || a.Kind == aSave || a.Kind == aClear {
		return // it holds no lease, for all we know
	}
	w := &recovery{of: a, alone: a.of.session.openAt(a.by) == 1 && c.failing == nil}
	for _, s := range c.slots {
		if s.child != nil && s.child != a.by && s.child.available() && a.of.session.openAt(s.child) > 0 {
			w.since = at
		}
	}
	c.waits = append(c.waits, w)
}

func (a *attempt) loadedAt() int64 {
	if a.loaded == nil {
		return 0
	}
	return a.loaded.Time
}

// openAt is how many of its messages an instance has.
func (s *session) openAt(c *child) (n int) {
	for _, a := range c.open {
		if a.of.session == s {
			n++
		}
	}
	return n
}

// recovered ends the waiting for a session: a has begun there.
func (c *campaign) recovered(a *attempt, began int64) {
	c.waits = slices.DeleteFunc(c.waits, func(w *recovery) bool {
		if w.of.of.session != a.of.session || w.of == a || w.since == 0 || began < w.since {
			return false
		}
		took := time.Duration(began - w.since)
		if w.alone && c.failing == nil {
			c.tally.recovered = append(c.tally.recovered, took)
		} else {
			c.tally.slowest = max(c.tally.slowest, took)
		}
		return true
	})
}

// wake continues instances that were stopped for longer than a lease lasts, as soon as somebody else has the session.
func (c *campaign) wake() {
	if c.frozen {
		return
	}
	for _, s := range c.slots {
		if s.child == nil || s.child.stopped.IsZero() {
			continue
		}
		a := s.child.target
		stood := time.Since(s.child.stopped)
		if stood < c.plan.ttl+c.plan.ttl/5 || stood < 10*c.plan.ttl && !a.overtaken(s.child.stopped.UnixNano()) {
			continue
		}
		s.child.stopped = time.Time{}
		s.child.cont()
		if a.of.session.stopped == s.child {
			a.of.session.stopped = nil
		}
	}
}

// clearBehind has a session cleared whose holder was stopped.
func (c *campaign) clearBehind(s *session) *attempt {
	u := &unit{session: s, turn: s.given, kind: aClear, behind: true, name: fmt.Sprintf("%s/%d", s.name, s.given)}
	a := c.deliver(u, onPause)
	if a != nil {
		s.given++
		s.unanswered++
		c.units, c.all = append(c.units, u), append(c.all, u)
	}
	return a
}

// overtaken reports whether somebody else has loaded since an instance was stopped.
func (a *attempt) overtaken(since int64) bool {
	if a.rival != nil && a.rival.ended == 0 {
		return a.rival.loaded != nil
	}
	if a.of.session.notes && a.rival != nil && !a.rival.of.answered {
		return false
	}
	for _, h := range slices.Backward(a.of.session.holds) {
		if h.by != a && h.time > since {
			return true
		}
	}
	return false
}

// keepInstances starts those that are not there.
func (c *campaign) keepInstances() {
	for i := range c.slots {
		s := &c.slots[i]
		if s.child != nil || c.frozen || time.Now().Before(s.at) {
			continue
		}
		s.child = startChild(c.t, config{
			Addrs: c.service.addrs, MasterName: c.service.masterName, TTL: c.plan.ttl, Punctual: rand.N(2) == 0, Broken: c.plan.broken,
		}, c.in)
	}
}

// died takes note of an instance that has ended.
func (c *campaign) died(by *child, err error) {
	for i := range c.slots {
		if c.slots[i].child == by {
			c.slots[i] = slot{at: time.Now().Add(rand.N(200 * time.Millisecond))}
		}
	}
	if !by.killed {
		c.tally.crashes++
		c.blame(failure, "an instance has ended by itself: %v\n%s", err, by.stderr.String())
	}
	if stderr := by.stderr.String(); strings.Contains(stderr, "DATA RACE") {
		c.blame(failure, "%s", stderr)
	}
	for _, a := range by.open {
		a.died = true
		c.ended(a)
	}
}

// stand stops or continues all instances.
func (c *campaign) stand(s stillness) {
	c.frozen = s.on
	for _, slot := range c.slots {
		if slot.child == nil || !slot.child.available() {
			continue
		}
		if s.on {
			slot.child.stop()
		} else {
			slot.child.cont()
		}
	}
	close(s.done)
}

// hangUp closes all connections to Redis, as often as there are two strikes.
func (c *campaign) hangUp() {
	if c.failing != nil || c.tally.answered < (c.tally.hangUps+1)*c.plan.turns/max(1, c.plan.strikes/2) {
		return
	}
	c.tally.hangUps++
	c.hangingUp.Go(c.service.hangUp)
}

// failOver begins a fail-over if one is due.
func (c *campaign) failOver() {
	n := len(c.failovers)
	if c.failing != nil || n == c.plan.failovers || c.tally.answered < (n+1)*c.plan.turns/(c.plan.failovers+1) {
		return
	}
	for _, w := range c.waits {
		w.alone = false
	}
	over := make(chan failover, 1)
	c.failing = over
	session, names := c.sessions[rand.N(len(c.sessions))].name, c.sessionNames()
	go func() {
		defer close(over)  // also if the servers fail
		c.hangingUp.Wait() // or the connections for what follows are cut too
		over <- c.service.failOver(session, names, c.plan.cut, c.plan.asMaster, func(on bool) {
			s := stillness{on, make(chan struct{})}
			select {
			case c.still <- s:
				<-s.done
			case <-c.t.Context().Done():
			}
		})
	}()
}

// end ends all instances, at once if the test has failed.
func (c *campaign) end() {
	c.hangingUp.Wait()
	left := 0
	for _, s := range c.slots {
		if s.child != nil {
			left++
		}
	}
	// Whoever has died is not started again.
	for i := range c.slots {
		if ch := c.slots[i].child; ch != nil {
			ch.ended = true
			_ = ch.in.Close()
			ch.cont()
		}
	}
	slots := c.slots
	c.slots = nil
	kill := time.NewTimer(15 * time.Second)
	defer kill.Stop()
	for left > 0 {
		select {
		case s := <-c.in:
			if s.report != nil {
				continue
			}
			left--
			if s.err != nil && !s.by.killed {
				c.blame(failure, "an instance has ended with %v\n%s", s.err, s.by.stderr.String())
			}
		case <-kill.C:
			c.blame(failure, "some instances do not end")
			for _, s := range slots {
				if s.child != nil {
					s.child.killed = true
					s.child.kill()
				}
			}
		}
	}
}
