package campaign

import (
	"strings"
	"syscall"
	"time"
)

// moment is one in a turn, or around a Save or Clear outside turns.
type moment string

const (
	beforeLoad moment = "before load"
	afterLoad  moment = "after load"
	inModel    moment = "in the model"
	aroundSave moment = "around save"
	afterSave  moment = "after save"
	beforeAck  moment = "before the acknowledgement"
)

var moments = []moment{beforeLoad, afterLoad, inModel, aroundSave, afterSave, beforeAck}

// manner is how a worker goes on after it was stopped at a moment.
type manner string

const (
	checked  manner = "checked"  // as if nothing had been: through the decorator, which knows the lease
	unasked  manner = "unasked"  // with the planned write, by the store itself
	nameless manner = "nameless" // with another write, without a turn ID, by the store itself
)

// aim is a strike that is to come at a moment. The first task to come to it takes it.
type aim struct {
	At      moment
	Then    manner
	Session string // a part of the session's name
}

// aimed is the aim that a task has taken.
type aimed struct {
	*aim
	since  int64
	answer chan answer
}

// reach reports the moment of a strike to the parent and waits for the strike. It reports whether the
// task is to go on past all checks.
func (t *task) reach(m moment) (past bool) { return t.announce(m) && t.struck() }

// announce reports the moment of a strike to the parent, if that is now.
func (t *task) announce(m moment) bool {
	aim := t.aim.Load()
	if aim == nil || aim.At != m || !strings.Contains(t.session, aim.Session) || !t.aim.CompareAndSwap(aim, nil) {
		return false
	}
	t.aimed = &aimed{aim, now(), make(chan answer, 1)}
	s := &said{What: sayReached, Attempt: &attempt{Run: t.config.Run, Session: t.session, Kind: t.kind, Begun: t.begun}}
	if t.named {
		s.Attempt.Turn = t.turn
	}
	in := t.aimed.answer
	go func() { in <- t.process.tell(s) }()
	return true
}

// struck waits until the process has been stopped and continued since the announcement. It reports
// whether the task is to go on past all checks. No code has looked at a lease yet when struck
// returns. If the process is to be killed, struck does not return.
func (t *task) struck() (past bool) {
	for last := t.aimed.since; now()-t.aimed.since < int64(20*time.Second); time.Sleep(time.Millisecond) {
		at := now()
		if at-last > int64(t.config.TTL) {
			return t.aimed.Then != checked
		}
		last = at
		select {
		case a := <-t.aimed.answer:
			if a.Refused { // the strike does not come any more
				return false
			}
		default:
		}
	}
	return false
}

// reached hands a moment to the fault that waits for it.
func (c *campaign) reached(s *said) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.aims[s.Run]
	delete(c.aims, s.Run)
	if in == nil {
		return answer{Refused: true}
	}
	in <- s.Attempt
	return answer{}
}

// aimAt waits until some task of a worker comes to a moment. A fifth of the tasks are notes.
func (c *campaign) aimAt(h *hit) (*worker, *attempt) {
	w := c.someone(h)
	if w == nil {
		return nil, nil
	}
	a := aim{At: moments[h.rng.IntN(len(moments))], Then: []manner{unasked, nameless, checked}[h.rng.IntN(3)], Session: "/talk-"}
	if h.rng.IntN(5) == 0 {
		a.Session = "/notes-"
	}
	in := make(chan *attempt, 1)
	c.mu.Lock()
	c.aims[w.run] = in
	c.mu.Unlock()
	w.tell(order{Do: doReach, Aim: &a})
	select {
	case reached := <-in:
		if a.At == aroundSave {
			time.Sleep(between(h.rng, 0, 500*time.Microsecond)) // the Save is under way
		}
		c.say("%s: %s, in %s, then %s", h.id(), a.At, reached.Session, a.Then)
		return w, reached
	case <-w.Done():
	case <-time.After(3 * time.Second):
	}
	c.mu.Lock()
	delete(c.aims, w.run)
	c.mu.Unlock()
	w.tell(order{Do: doReach})
	c.misses(h, "it did not come %s of %s", a.At, a.Session)
	return nil, nil
}

// handOut gives the message of a stopped or killed worker to another worker, as a load balancer
// does. The ledger has to know the first attempt, even if its worker does not report it any more.
func (c *campaign) handOut(h *hit, struck *worker, a *attempt, do kind) {
	if do == a.Kind {
		a.End, a.Ended, a.Write = unknown, now(), a.own()
		if a.Kind == aSave {
			a.Sent, a.Write = a.Begun, "note"
		}
		c.ledger.add(a)
	}
	for n := range c.slots {
		w := c.slots[(h.victim+n)%len(c.slots)].now()
		if w != nil && w != struck {
			w.tell(order{Do: doMeet, Key: a.Session, Turn: a.Turn, Kind: do})
			return
		}
	}
}

// killAt kills a worker at a moment of a turn.
func killAt(c *campaign, h *hit) {
	w, a := c.aimAt(h)
	if w == nil {
		return
	}
	keys := c.register.holds(w.run)
	w.Kill()
	c.await(h, w.run, keys, c.plan.bar())
	<-w.Done()
	if a.Turn != 0 && (a.Kind == aTurn || a.Kind == aSave) {
		c.handOut(h, w, a, a.Kind)
	}
}

// stopAt stops a worker at a moment of a turn for longer than its leases last. Another worker gets
// the message, or clears the session of notes.
func stopAt(c *campaign, h *hit) {
	w, a := c.aimAt(h)
	if w == nil {
		return
	}
	c.windows.begin(h.window)
	_ = w.Signal(syscall.SIGSTOP)
	h.at = now() // it lasts from then
	h.restore = func() { _ = w.Signal(syscall.SIGCONT) }
	switch {
	case strings.Contains(a.Session, "/notes-"):
		c.handOut(h, w, &attempt{Session: a.Session}, aClear)
	case a.Turn != 0 && a.Kind == aTurn && h.rng.IntN(2) == 0:
		c.handOut(h, w, a, aTurn)
	}
}
