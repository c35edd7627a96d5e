package campaign

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// holderKilled is the fault whose recoveries are a figure of their own.
const holderKilled = "holder killed"

var workerFaults = []*fault{
	{name: holderKilled, on: everywhere, of: ofWorker, barred: true, strike: onWorker(killHolder)},
	{name: "holder stopped", on: everywhere, breaks: true, of: ofWorker, short: 1200 * ms, long: 2500 * ms, strike: onWorker(stop)},
	{name: "killed at a moment of a turn", on: everywhere, of: ofWorker, turns: true, barred: true, strike: onWorker(atMoment(killAt))},
	{name: "stopped at a moment of a turn", on: everywhere, breaks: true, of: ofWorker, turns: true, short: 1200 * ms, long: 2500 * ms, strike: onWorker(atMoment(stopAt))},
	{name: "waiter killed in the queue", on: everywhere, of: ofWorker, barred: true, strike: onWorker(killWaiter)},
	{name: "shut down", on: everywhere, of: ofWorker, barred: true, strike: onWorker(shutDown)},
	{name: "contexts cancelled", on: everywhere, of: ofWorker, short: 300 * ms, long: 1200 * ms, strike: command(doCancel)},
	{name: "starved", on: everywhere, of: ofWorker, short: 500 * ms, long: 2000 * ms, strike: command(doStarve)},
}

func onWorker(strike func(*campaign, *hit, *worker)) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		if w := c.someone(h); w != nil {
			strike(c, h, w)
		}
	}
}

func killHolder(c *campaign, h *hit, w *worker) {
	if keys := c.catch(h, w, ""); len(keys) > 0 {
		c.kills(h, w, keys)
	}
}

// kills kills a worker: others are to work with its keys soon.
func (c *campaign) kills(h *hit, w *worker, keys []string) {
	w.Kill()
	c.await(h, w.run, keys, c.plan.bar())
	<-w.Done()
}

// catch stops a worker in a moment in which it works with something that others want, and returns
// what. For half a second it looks for something of a kind.
func (c *campaign) catch(h *hit, w *worker, kind string) (keys []string) {
	start := time.Now()
	wanted := func() bool {
		keys = c.register.holds(w.run)
		return len(keys) > 0 && (time.Since(start) > 500*time.Millisecond ||
			slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, kind) }))
	}
	for ; time.Since(start) < time.Second; time.Sleep(time.Millisecond) {
		if !wanted() {
			continue
		}
		c.windows.begin(h.window)
		_ = w.Signal(syscall.SIGSTOP)
		if wanted() {
			return keys
		}
		_ = w.Signal(syscall.SIGCONT) // that was a moment: it had just left
	}
	c.misses(h, "it held nothing that others want")
	c.windows.end(h.window)
	return nil
}

// stop stops a worker for longer than its leases last, mostly in the middle of a turn.
func stop(c *campaign, h *hit, w *worker) {
	keys := c.catch(h, w, []string{"talk-", "talk-", "talk-", ""}[h.rng.IntN(4)])
	if len(keys) == 0 {
		return
	}
	h.at = now() // it lasts from then
	c.await(h, w.run, keys, 0)
	h.restore = func() { _ = w.Signal(syscall.SIGCONT) }
}

// killWaiter has one worker hold a key and two others wait in its queue, and kills the first of
// these. The other has the key within a TTL and a second after the release.
func killWaiter(c *campaign, h *hit, victim *worker) {
	n := len(c.slots)
	holder, next := c.slots[(h.victim+1)%n].worker.Load(), c.slots[(h.victim+2)%n].worker.Load()
	if holder == nil || next == nil {
		c.misses(h, "there is no worker")
		return
	}
	key := fmt.Sprint("line/", h.n)
	hold := 400*time.Millisecond + between(h.rng, 0, 400*time.Millisecond)
	holder.tell(order{Do: doHold, Key: key, For: hold})
	servers.Within(time.Second, func() bool { return slices.Contains(c.register.holds(holder.run), key) })
	victim.tell(order{Do: doHold, Key: key})
	time.Sleep(100 * time.Millisecond)
	next.tell(order{Do: doHold, Key: key})
	time.Sleep(between(h.rng, 50*time.Millisecond, hold-150*time.Millisecond)) // the release comes later
	victim.Kill()
	<-victim.Done()
	c.register.mu.Lock()
	p := c.register.place(key)
	w := &wait{h: h, key: key, since: now(), not: victim.run, bar: c.plan.bar(), by: next.run}
	w.fromLeave = p.inside != nil && p.inside.id.run == holder.run
	// Otherwise the holder is new, or there was no queue yet, or it had moved on.
	queued := len(p.grants) == 1 && p.grants[0].run == holder.run
	if queued {
		p.waits = append(p.waits, w)
	}
	c.register.mu.Unlock()
	if !queued {
		c.misses(h, "it did not queue")
	}
	time.Sleep(200 * time.Millisecond)
}

// shutDown tells a worker to end, as a service manager does.
func shutDown(c *campaign, h *hit, w *worker) {
	keys := c.register.holds(w.run)
	_ = w.Signal(syscall.SIGTERM)
	c.await(h, w.run, keys, c.plan.bar())
	c.ends(w)
}

// command sends an order to a worker, which strikes itself.
func command(what string) func(*campaign, *hit) {
	return onWorker(func(c *campaign, h *hit, w *worker) { w.tell(order{Do: what, For: h.lasts}) })
}

var networkFaults = []*fault{
	{name: "cut off", on: everywhere, of: ofWorker, short: 800 * ms, long: 2500 * ms, strike: cutOff},
	{name: "slow network", on: everywhere, of: ofWorker, short: 500 * ms, long: 2000 * ms, strike: slowDown},
	{name: "replies lost", on: everywhere, of: ofWorker, short: 300 * ms, long: 1200 * ms, strike: dropReplies},
	{name: "late packet of a Save", on: everywhere, of: ofWorker, turns: true, short: 500 * ms, long: 7000 * ms, strike: holdSaves},
}

func cutOff(c *campaign, h *hit) {
	s := c.proxied(h)
	w := s.worker.Load()
	if w == nil {
		c.misses(h, "there is no worker")
		return
	}
	h.aims(c, w)
	w.tell(order{Do: doSlow, For: h.lasts})
	servers.Within(time.Second, func() bool { return len(c.register.holds(w.run)) > 0 })
	s.network.Cut()
	h.restore = s.network.Heal
	c.await(h, w.run, c.register.holds(w.run), 0)
}

func slowDown(c *campaign, h *hit) {
	s := c.proxied(h)
	s.network.Latency(between(h.rng, 2*time.Millisecond, 60*time.Millisecond))
	h.restore = func() { s.network.Latency(0) }
	if s.worker.Load() == nil {
		c.misses(h, "there is no worker")
	}
}

// dropReplies loses the answer to one request of some.
func dropReplies(c *campaign, h *hit) {
	n, every := 0, 5+h.rng.IntN(60)
	dropped := c.proxied(h).network.DropReplies(func([]byte) bool {
		n++
		return n%every == 0
	})
	h.restore = func() {
		dropped.Stop()
		if dropped.Count() == 0 {
			c.misses(h, "no reply was lost")
		}
	}
}

// holdSaves lets the requests of a few Saves arrive late: when their callers have left, say.
func holdSaves(c *campaign, h *hit) {
	saves := faultnet.Containing(`"w":`) // of a message
	held := c.proxied(h).network.HoldRequests(faultnet.First(1+h.rng.IntN(3), saves))
	h.restore = func() {
		held.Release()
		if held.Count() == 0 {
			c.misses(h, "no Save was sent")
		}
	}
}

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
func (c *campaign) aimAt(h *hit, w *worker) *attempt {
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
		return reached
	case <-w.Done():
	case <-time.After(3 * time.Second):
	}
	c.mu.Lock()
	delete(c.aims, w.run)
	c.mu.Unlock()
	w.tell(order{Do: doReach})
	c.misses(h, "it did not come %s of %s", a.At, a.Session)
	return nil
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
		w := c.slots[(h.victim+n)%len(c.slots)].worker.Load()
		if w != nil && w != struck {
			w.tell(order{Do: doMeet, Key: a.Session, Turn: a.Turn, Kind: do})
			return
		}
	}
}

func atMoment(strike func(*campaign, *hit, *worker, *attempt)) func(*campaign, *hit, *worker) {
	return func(c *campaign, h *hit, w *worker) {
		if a := c.aimAt(h, w); a != nil {
			strike(c, h, w, a)
		}
	}
}

func killAt(c *campaign, h *hit, w *worker, a *attempt) {
	c.kills(h, w, c.register.holds(w.run))
	if a.Turn != 0 && (a.Kind == aTurn || a.Kind == aSave) {
		c.handOut(h, w, a, a.Kind)
	}
}

// stopAt stops a worker at a moment of a turn. Another one gets the message, or clears the notes.
func stopAt(c *campaign, h *hit, w *worker, a *attempt) {
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
