// Package stopmodel plays Stop and Interrupt of one conversation at random: one lock, one store,
// and Answers, Turns and single writes in three processes. Its faults are pauses, deaths, late
// copies of requests, lost notices, expired leases, and a failover of the lock to an older state.
//
// # Words
//
//   - message: the ID of an Answer. work: the message in a grant; the grant of a Turn has none.
//   - ask: the holder shall end its work. The lease lasts on, for at most a TTL. An ask by fence
//     means the grant that shows this token. An ask by work means the grant of this message.
//   - shown token: what waiters see: the holder's token, or after an ask the token of the ask.
//   - key: the oldest shown token that a lease's waiter has noted, else the lease's first token.
//   - mark: the highest token that the store has seen. stopped: the token of the last Stop("").
//   - Close: the store decides, without a lease, that a message is never answered. by: the
//     caller's message, in an Interrupt. below: the Close does nothing if the mark has reached it.
//   - arrive: an interrupting Answer makes itself known to the store. newest: the last to arrive.
//
// # Promises
//
// After a Stop returns nil, its work stores nothing. Work that begins later is neither asked nor
// ended. A message is stored once, or closed. A stopped message stays closed. Copies of one message
// do not interrupt each other. Of messages that interrupt each other, the newest is answered.
// Interrupt spares turns that are younger than After. An asked Answer may store within the grace.
//
// # Rules, and what happens without each
//
//   - Cond: an ask by fence ends no other grant. Its late copy ends a later holder.
//   - Shown: an ask raises the shown token. Waiters from after a Stop note an older one, and end.
//   - Stopped: a lease's first access fails if key < stopped. Waiters from before a Stop store.
//   - Loop: Stop("") repeats if the mark was above its ask. A waiter granted before stores.
//   - Key: a raise keeps the key. A waiter from before a Stop raises its token, and stores.
//   - RaiseNote: waiters note the token below a raised one. With the old one, new waiters end.
//   - Handoff: a Turn that began after the grant's request takes no handoff. It outlives a Stop.
//   - LocalKey: a write handed over that began after this request has no key. New writes end.
//   - AnswerLocal: an Answer takes and makes no local handoff. The grant's work is another message.
//   - JoinAsk: a joining waiter makes its contender ask. It first notes the token of a later Stop.
//   - CloseFirst: Stop(id) and Interrupt close before they ask. Asked work finds its message open.
//   - Floor: Stop(id) shows the store the token of a free lock. An expired holder writes.
//   - Mark: Stop(id) shows the store the token of its ask. The work writes without its message.
//   - Own: of a holder that it does not ask, that is the holder's own token. A grace ends.
//   - Older: Stop(id) repeats if the mark was above its ask. A repeat begun in the grace writes.
//   - Handed: unless the mark lies in the block of another holder. A local handoff's turn ends.
//   - ShowID: Stop("") closes the work of the grant that it asked. A redelivery is answered.
//   - EndedClose: an Answer ended by Stop("") closes its message. The message stays open.
//   - Reread: in an Answer, the first access of a raised token reads the message. A closed one
//     writes.
//   - Below: a Close of a running message has a bound. A late copy closes a redelivery that runs.
//   - ByRef: a decided message closes nothing, nor is it judged. An answered one is superseded.
//   - Once: a message arrives once. A late copy of an arrival makes an older message the newest.
//   - Arrive: messages arrive before they wait. Older waiters end the newest.
//   - Judge: a Close supersedes its own by if a newer message has arrived. It ends the newest.
//   - JudgeBelow: an arrival judges nothing. It closes its own message, which runs elsewhere.
//   - Overtake: a Close of another message judges its by, too. An older message ends a newer one.
package stopmodel

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// Rule names a part of the protocol that Play can leave out. The package documentation explains it.
type Rule string

const (
	block   = 400  // tokens that a grant reserves above its own
	perStep = 50   // tokens per step of the clock
	longest = 9000 // steps of a schedule that ends

	abandoned = "abandoned" // unwinds a task that does not go on
)

// outcome is what became of an access to the store, of a message, or of a player. No outcome: open.
type outcome string

// A lease is ended if it waited before a Stop(""). A Close is refused if by is decided.
const (
	done, answered, stopped, superseded outcome = "done", "answered", "stopped", "superseded"
	ended, stale, lost, interrupted     outcome = "ended", "stale", "lost", "interrupted"
	refused                             outcome = "refused"
)

func (o outcome) closed() bool { return o == stopped || o == superseded }

// grant is what the lock keeps for its holder. A lease has a copy. Owner 0: the lock is free.
type grant struct {
	owner, token, shown, last, at int // last: the end of the block
	asked                         bool
	work                          string
}

// process has one contender: the waiter that asks the lock. Its other waiters queue locally.
type process struct {
	waiters           []*player
	contender, holder *player
	paused            int // until then
	dead              bool
}

// player is one call of an application: an Answer to id, a write outside a turn, or a Turn.
type player struct {
	*world
	process                                   *process
	id                                        string
	uid, steps, grace, began                  int
	write, interrupts, hasArrived             bool
	awaited, noted, look                      int // look: when Interrupt looks again
	prompt, waited                            bool
	grant                                     grant
	token, key, sent, handed, accessed, until int // sent: its grant's request; until: of a grace
	leased, over, working, local, hint, asked bool
	decided, result                           outcome
}

// call is one call of Stop. Returned is 0 until the call returns false, nil.
type call struct {
	id, work        string
	began, returned int
	failed          bool
}

// task is one thread of a player, a Stop, or the late copy of a request. Each pause ends its step.
type task struct {
	process *process
	next    func() (struct{}, bool)
	abandon func()
	yield   func(struct{}) bool
	done    bool
}

// world is one schedule. Time is the number of the step.
type world struct {
	*rand.Rand
	without                                 Rule
	mode                                    string
	messages                                []string
	now, after, window                      int // window: in which a process hands over locally
	last                                    int // of the lock, like its holder and its queue
	held                                    grant
	queue                                   []*player
	mark, stopped                           int // of the store, like what follows
	fates                                   map[string]outcome
	arrived                                 map[string]bool
	newest                                  string
	log                                     []string // the message of each entry
	loss                                    float64  // of notices
	faults, failedOver, interrupting, often bool
	processes                               []*process
	players                                 []*player
	tasks                                   []*task
	running                                 *task
	calls                                   []*call
	violations                              []string
}

// Play plays the schedule of a seed, and returns the broken promises. An empty rule omits none.
func Play(seed uint64, without Rule) (violations []string) {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), without: without, faults: seed%2 == 0}
	w.fates, w.arrived, w.processes = map[string]outcome{}, map[string]bool{}, []*process{{}, {}, {}}
	w.mode, w.loss, w.often = pick(w, "mixed", "mixed", "mixed", "interrupts", "duplicates"), pick(w, 0, .5), w.chance(.5)
	w.after, w.window, w.interrupting = pick(w, 0, 0, 10, 70), pick(w, 10, 30, 90), w.mode != "mixed" || w.chance(.5)
	w.messages = []string{"m0", "m1", "m2", "m3", "m4", "m5"}[:when(w.mode == "duplicates", 1, w.between(2, 6))]
	players, stops := w.between(2, 9), when(w.mode == "mixed", w.between(1, 4), 0)
	failover := when(w.faults && w.chance(.35), w.between(40, 500), 0)
	last, held, copied := 0, grant{}, false // of a replica
	for len(w.tasks) > 0 || players > 0 || stops > 0 {
		if w.now++; w.now > longest {
			w.check(false, "the schedule does not end")
			break
		}
		if w.now < failover && w.chance(.05) {
			last, held, copied = w.last, w.held, true
		}
		if w.now == failover && copied {
			w.last, w.held, w.queue, w.failedOver = last, held, nil, true
		}
		if players > 0 && w.chance(.05) {
			players--
			w.addPlayer()
		}
		if stops > 0 && w.chance(.02) {
			stops--
			w.start(&process{}, w.stop)
		}
		w.step()
	}
	w.judge()
	for _, t := range w.tasks {
		t.abandon()
	}
	return w.violations
}

func (w *world) has(r Rule) bool { return r != w.without }

func (w *world) chance(p float64) bool { return w.Float64() < p }

func (w *world) between(low, high int) int { return low + w.IntN(high-low+1) }

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

func when[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

func (w *world) addPlayer() {
	p := &player{world: w, process: pick(w, w.processes...), id: pick(w, w.messages...), uid: len(w.players) + 1, began: w.now}
	p.steps, p.grace, p.interrupts = pick(w, 0, 2, w.between(1, 30)), pick(w, 0, 0, 8), w.mode != "mixed" || w.interrupting && w.chance(.5)
	if w.mode == "mixed" && w.chance(.4) {
		p.id, p.write = "", w.chance(1./3)
		p.interrupts = !p.write && w.interrupting && w.chance(.3)
	}
	w.players = append(w.players, p)
	w.start(p.process, p.play)
	if p.interrupts {
		w.start(p.process, p.interrupt)
	}
}

func (w *world) start(c *process, work func()) {
	t := &task{process: c}
	t.next, t.abandon = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if problem := recover(); problem != nil && problem != abandoned {
				panic(problem)
			}
		}()
		t.yield = yield
		work()
	})
	w.tasks = append(w.tasks, t)
}

// pause ends the step of the running task. Other tasks may run before pause returns.
func (w *world) pause() {
	if !w.running.yield(struct{}{}) {
		panic(abandoned)
	}
}

// step pauses and kills processes, runs about half of the tasks, and expires grants.
func (w *world) step() {
	for n, c := range w.processes {
		c.paused = when(w.faults && w.chance(.006), w.now+w.between(5, 90), c.paused)
		if w.faults && w.chance(.0008) {
			c.dead, w.processes[n] = true, &process{}
		}
	}
	for _, t := range slices.Clone(w.tasks) {
		if t.process.dead {
			t.abandon()
			t.done = true
		} else if t.process.paused <= w.now && w.chance(.5) {
			w.running = t
			_, more := t.next()
			t.done = !more
		}
	}
	w.tasks = slices.DeleteFunc(w.tasks, func(t *task) bool { return t.done })
	running := slices.ContainsFunc(w.players, func(p *player) bool {
		return (p.holds() || !p.leased && w.held.owner == p.uid) && !p.gone() && p.process.paused <= w.now
	})
	if !running && w.chance(.05) {
		w.held = grant{}
	}
	w.grantNext()
}

func (w *world) mint(floor int) int {
	token := max(w.last+1, w.now*perStep, floor)
	w.last = max(token, w.now*perStep+block)
	return token
}

func (w *world) grantNext() {
	w.queue = slices.DeleteFunc(w.queue, (*player).gone)
	if w.held.owner == 0 && len(w.queue) > 0 {
		p, token := w.queue[0], w.mint(0)
		w.queue = w.queue[1:]
		w.held = grant{owner: p.uid, token: token, shown: token, last: w.last, at: w.now, work: p.id}
	}
}

// askReply has the token of the ask if it is new: if the holder was asked, or the lock is free.
// Otherwise the reply has the shown token.
type askReply struct {
	new, asked bool
	fence, own int // own: the token of the holder
	age        int
	work       string
}

// ask asks the holder that shows fence, or that does the work. Without both it looks.
func (w *world) ask(fence int, work string, floor int) (reply askReply) {
	w.send(func() {
		g := &w.held
		reply = askReply{asked: g.owner != 0, fence: g.shown, own: g.token, work: g.work, age: w.now - g.at}
		if reply.asked && (work == "" || g.work != work) && (fence == 0 || fence != g.shown && w.has("Cond")) {
			reply.asked = false
			return
		}
		w.last = max(w.last+1, floor, w.now*perStep)
		reply.new, reply.fence, g.asked = true, w.last, reply.asked
		g.shown = when(g.asked && w.has("Shown"), w.last, g.shown)
		heard := !w.chance(w.loss)
		for _, p := range w.players {
			p.hint = p.hint || heard && p.holds() && !p.over
		}
	})
	return reply
}

// send makes a request. The network may deliver a copy later.
func (w *world) send(request func()) {
	request()
	if due := w.now + w.between(5, 90); w.chance(.2) {
		w.start(&process{}, func() {
			for w.now < due {
				w.pause()
			}
			request()
		})
	}
	w.pause()
}

// access is a Load or Answered of a message, or the write of an exchange.
func (w *world) access(p *player, id string, write bool) outcome {
	fate, first := w.fates[id], !write || p.token > p.accessed
	switch {
	case first && p.key != 0 && p.key < w.stopped && w.has("Stopped"):
		return ended
	case write && 0 < p.accessed && p.accessed < w.mark && w.mark < p.token:
		return stale // another token came between two of this lease
	case write && fate != "":
		return fate
	case p.token < w.mark:
		w.check(!p.holds() || p.held.asked || p.accessed == 0 || w.failedOver || p.isStopped(), "player %d is ended by a Stop of other work", p.uid)
		return stale
	}
	w.mark, p.accessed = p.token, when(fate == "", p.token, p.accessed)
	if write {
		w.log = append(w.log, id)
		w.fates[id] = when(id != "", answered, "")
		w.judgeEntry(p, id)
	}
	return cmp.Or(fate, done)
}

// closing is the request of a Close.
type closing struct {
	id, by            string
	fate              outcome
	below, mark, stop int
}

// close returns the outcome of a Close, and the mark before. The order of its steps matters.
func (w *world) close(c closing) (result outcome, was int) {
	w.send(func() {
		was = w.mark
		judges := (c.below > 0 || !w.has("JudgeBelow")) && w.has("Judge") && (c.id == "" || w.has("Overtake"))
		if result = refused; c.by != "" && w.fates[c.by] != "" && w.has("ByRef") {
			return
		}
		if c.below > 0 && w.mark >= c.below && w.has("Below") {
			result = done
			return
		}
		if c.by != "" && c.below == 0 && (!w.arrived[c.by] || !w.has("Once")) {
			w.arrived[c.by], w.newest = true, c.by
		}
		if judges && w.arrived[c.by] && w.newest != c.by && !w.fates[w.newest].closed() {
			w.setFate(c.by, superseded)
			return
		}
		w.mark, w.stopped = max(w.mark, c.mark), max(w.stopped, c.stop)
		if c.id != "" && w.fates[c.id] == "" {
			w.setFate(c.id, c.fate)
			for _, p := range w.players {
				p.until = when(p.id == c.id, 0, p.until)
			}
		}
		result = cmp.Or(w.fates[c.id], done)
	})
	return result, was
}

// setFate decides an open message. It checks that Interrupt spares turns younger than After.
// After a failover, a revived lease may end with its successor: a limit of the protocol.
func (w *world) setFate(id string, fate outcome) {
	for _, p := range w.players {
		young := p.id == id && p.working && !p.over && p.holds() && w.now-p.grant.at < w.after
		w.check(fate != superseded || !young || w.failedOver, "player %d is superseded though its turn is younger than After", p.uid)
	}
	w.fates[id] = fate
}

func (p *player) gone() bool { return p.over || p.process.dead || p.decided != "" }

func (p *player) holds() bool { return p.leased && p.held.owner == p.grant.owner }

// note gives waiters that began before a request the shown token of its reply.
func (c *process) note(now, shown, sent int) {
	for _, p := range append(slices.Clone(c.waiters), c.contender) {
		if p != nil && sent >= p.began && shown != 0 {
			p.awaited, p.noted = min(cmp.Or(p.awaited, shown), shown), cmp.Or(p.noted, now)
		}
	}
}

// lease begins a lease. After a local handoff it shares the grant of its predecessor.
func (p *player) lease(g grant, token, sent int, local bool) {
	first := when(local && p.began > sent && p.has("LocalKey"), 0, token)
	p.leased, p.grant, p.token, p.key, p.sent, p.local = true, g, token, cmp.Or(p.awaited, first), sent, local
	p.noted, p.process.holder = cmp.Or(p.noted, p.now), p
	p.leave()
}

// leave ends the wait.
func (p *player) leave() {
	c := p.process
	c.contender = when(c.contender == p, nil, c.contender)
	c.waiters = slices.DeleteFunc(c.waiters, func(q *player) bool { return q == p })
}

// promote makes the first waiter the contender, unless a young lease may be handed over.
func (c *process) promote(w *world) {
	c.waiters = slices.DeleteFunc(c.waiters, (*player).gone)
	if c.contender == nil && len(c.waiters) > 0 && (c.holder == nil || w.now-c.holder.grant.at >= w.window) {
		c.contender, c.waiters = c.waiters[0], c.waiters[1:]
	}
}

func (p *player) wait() {
	c := p.process
	if c.contender != nil {
		c.contender.prompt = c.contender.prompt || p.has("JoinAsk")
	}
	c.waiters = append(c.waiters, p)
	for c.promote(p.world); !p.leased && p.decided == ""; c.promote(p.world) {
		if p.pause(); c.contender == p && p.decided == "" {
			p.contend()
		}
	}
	if p.decided != "" {
		p.leave()
		p.release()
	}
}

// contend asks the lock once, and waits until it may ask again.
func (p *player) contend() {
	sent := p.now
	p.prompt = false
	p.pause()
	if p.held.owner != p.uid && !slices.Contains(p.queue, p) {
		p.queue = append(p.queue, p)
	}
	p.grantNext()
	g := p.held
	p.pause()
	if g.owner != p.uid {
		p.waited = true
		p.process.note(p.now, g.shown, sent)
		again := p.now + when(p.often, p.between(15, 60), p.between(100, 400))
		for p.held.owner != p.uid && p.now < again && !p.prompt && p.decided == "" {
			p.pause()
		}
		g = p.held
	}
	if g.owner == p.uid {
		p.lease(g, g.token, sent, false)
	}
}

// raise lifts the token to floor, and reports whether the player still owns the lock.
func (p *player) raise(floor int) bool {
	before, sent := p.token, p.now
	if p.pause(); !p.holds() {
		return false
	}
	if g := &p.held; g.token < floor {
		g.token = p.mint(floor)
		g.last, g.shown = p.last, max(g.shown, g.token)
	}
	token := p.held.token
	p.pause()
	p.process.note(p.now, when(p.has("RaiseNote"), token-1, before), sent)
	p.token, p.key = token, when(p.has("Key"), p.key, token)
	return true
}

// persist accesses the store, and raises the token while the store calls it stale.
func (p *player) persist() (o outcome) {
	for range 4 {
		p.pause()
		if o = p.access(p, p.id, p.write); o != stale || !p.raise(p.mark+1) {
			return o
		}
	}
	return o
}

func (p *player) arrive() {
	p.hasArrived = true
	if o, _ := p.close(closing{by: p.id}); o == refused {
		p.decided = p.fates[p.id]
	}
}

// read sets the result of an Answer that cannot store.
func (p *player) read() { p.result = cmp.Or(p.fates[p.id], interrupted) }

func (p *player) play() {
	if p.pause(); p.interrupts && p.id != "" && p.has("Arrive") {
		p.arrive()
	}
	if p.decided == "" {
		p.wait()
	}
	if p.result = p.decided; p.result != "" {
		p.over = true
		return
	}
	if p.pause(); p.hasArrived && p.waited { // the judgement, which the first access reads
		p.close(closing{by: p.id, below: p.token})
	}
	switch p.result = p.persist(); {
	case p.result == done && !p.write:
		p.work()
	case p.result == stale:
		p.result = lost
	case p.result == ended:
		if p.judgeStop(true); p.id != "" {
			if p.pause(); p.has("EndedClose") {
				p.close(closing{id: p.id, fate: stopped})
				p.read()
			} else {
				p.result = stopped
			}
		}
	}
	p.pause()
	p.release()
}

// work is the application's function, with side writes and renewals, and the write at its end.
func (p *player) work() {
	p.working = true
	for n := 0; n < p.steps && !p.asked; n++ {
		p.pause()
		side := p.chance(.1)
		if side && p.chance(.4) { // Delete raises the token. A Load follows.
			p.raise(p.token + 1)
			if p.pause(); p.reread() && p.access(p, "", false) == ended {
				p.judgeStop(true)
			}
			p.pause()
		}
		if side && p.reread() {
			p.access(p, "", true)
		}
		if p.hint || n%8 == 7 { // the renewal
			p.hint = false
			p.pause()
			if p.asked = p.holds() && p.held.asked; p.asked {
				p.judgeStop(false)
			}
			p.pause()
		}
	}
	if p.pause(); p.asked && p.chance(.5) || !p.reread() {
		p.read()
		return
	}
	p.result = p.access(p, p.id, true)
	switch {
	case p.id == "" && p.asked:
		p.result = interrupted
	case p.id != "" && (p.result == stale || p.result.closed()):
		p.check(p.until <= p.now || p.result == stale && (p.failedOver || !p.holds() || p.isStopped()), "player %d is refused within its grace", p.uid)
		p.pause()
		p.read()
	}
}

// reread is the first access of a raised token under an Answer. It reads the message first.
func (p *player) reread() bool {
	if p.id == "" || !p.has("Reread") || p.accessed == 0 || p.token <= p.accessed {
		return true
	}
	o := p.access(p, p.id, false)
	p.pause()
	return o == done
}

// release hands the lock to a waiter of the process, or back to the backend.
func (p *player) release() {
	c, g := p.process, p.grant
	p.over, c.holder = true, when(c.holder == p, nil, c.holder)
	c.waiters = slices.DeleteFunc(c.waiters, (*player).gone)
	if p.holds() && c.contender == nil && len(c.waiters) > 0 && p.handsTo(c.waiters[0]) {
		next := c.waiters[0]
		next.handed = p.handed + 1
		next.lease(g, p.token+1, p.sent, true)
		return
	}
	if p.held.owner == cmp.Or(g.owner, p.uid) {
		p.held = grant{}
		p.grantNext()
	}
	c.promote(p.world)
}

func (p *player) handsTo(next *player) bool {
	answers := p.has("AnswerLocal") && (p.id != "" || next.id != "")
	late := p.has("Handoff") && !next.write && next.began > p.sent
	return !answers && !late && !p.asked && p.now-p.grant.at < p.window && p.token < p.grant.last && p.token == p.grant.token+p.handed
}

// interrupt runs beside the wait of a player with the policy Interrupt.
func (p *player) interrupt() {
	for p.pause(); !p.leased && !p.over && p.decided == ""; p.pause() {
		if p.now < p.look {
			continue
		}
		seen, age := p.held, p.now-p.held.at
		p.pause()
		switch {
		case seen.owner == 0 || p.leased:
			p.look = p.now + 4
		case p.id != "" && seen.work == p.id:
		case p.id != "" && !p.hasArrived:
			p.arrive()
		case age < p.after:
			p.look = p.now + p.after - age
		default:
			p.supersede(seen)
		}
	}
}

// supersede closes the seen work, and asks its holder. With a grace, the Close comes last.
func (p *player) supersede(seen grant) {
	c := closing{id: when(p.grace > 0, "", seen.work), by: p.id, fate: superseded, below: seen.shown + 1}
	if seen.work != "" && p.has("CloseFirst") {
		o, _ := p.close(c)
		p.decided = cmp.Or(p.decided, when(o == refused, p.fates[p.id], ""))
		if o == refused {
			return
		}
	}
	p.look = p.now + 8
	reply := p.ask(seen.shown, "", 0)
	p.check(!reply.asked || reply.age >= p.after, "player %d asks a turn that is younger than After", p.uid)
	p.waitForEnd(reply, p.grace)
	c.id, c.below = seen.work, reply.fence+1
	if reply.asked && c.id != "" && (p.grace > 0 && !p.over && !p.leased || p.grace == 0 && !p.has("CloseFirst")) {
		p.close(c)
	}
}

// waitForEnd waits, at most the grace, for the end of a grant that was asked.
func (w *world) waitForEnd(reply askReply, grace int) {
	end := w.now + grace
	if reply.asked && w.held.shown == reply.fence && w.fates[reply.work] == "" {
		p := w.players[w.held.owner-1]
		p.until = cmp.Or(p.until, end)
	}
	for reply.asked && w.now < end && w.held.shown == reply.fence {
		w.pause()
	}
}

func (w *world) stop() {
	s, grace := &call{began: w.now, id: when(w.chance(.5), pick(w, w.messages...), "")}, pick(w, 0, 0, 12)
	w.calls = append(w.calls, s)
	w.pause()
	o, work := w.stopWork(s.id, grace)
	s.work = when(s.id == "" && o == stopped, work, "")
	s.failed = o == "" || s.id != "" && o == answered
	s.returned = when(s.failed, 0, w.now)
}

// stopWork returns what became of the work of the last grant that was asked, or "" if it gives up.
func (w *world) stopWork(id string, grace int) (o outcome, work string) {
	if id != "" && grace == 0 && w.has("CloseFirst") {
		if o, _ := w.close(closing{id: id, fate: stopped}); o == answered {
			return o, id
		}
	}
	for n, fence, floor := 0, 0, 0; n < 16; n++ {
		reply := w.ask(fence, id, floor)
		c, own := closing{id: id, fate: stopped, mark: reply.fence}, 0 // own: the block of another holder
		switch {
		case !reply.new && id == "":
			fence = reply.fence
			continue
		case !reply.new:
			c.mark, own = when(w.has("Own"), reply.own, reply.fence), when(floor > 0 && w.has("Handed"), block, 0)
			c.mark = when(floor > c.mark+own, floor, c.mark)
		case id == "":
			c.id, c.stop = when(w.has("ShowID"), reply.work, ""), reply.fence
		}
		first := -1
		if c.stop > 0 && grace > 0 && reply.asked {
			_, first = w.close(closing{fate: stopped, mark: reply.own, stop: c.stop})
		}
		w.waitForEnd(reply, grace)
		top := c.mark + own
		c.mark = when(id == "" || w.has("Mark") && (reply.asked || w.has("Floor")), c.mark, 0)
		o, was := w.close(c)
		was = when(first < 0, was, first)
		again := was > top && (id == "" && w.has("Loop") || id != "" && w.has("Older"))
		if id != "" && o == answered || !again {
			return when(o == answered, o, stopped), reply.work
		}
		grace, floor = 0, was+1
	}
	return "", ""
}

func (w *world) check(kept bool, format string, values ...any) {
	if !kept {
		w.violations = append(w.violations, fmt.Sprintf(format, values...))
	}
}

// judgeEntry judges an entry that the store has accepted. A write that was handed over locally, and
// began after its grant's request, may escape Stop(""). This is a limit of the protocol.
func (w *world) judgeEntry(p *player, id string) {
	for _, s := range w.calls {
		all := s.returned > 0 && s.id == ""
		known, old := p.noted != 0 && p.noted < s.began, !w.faults && p.began < s.began-45-w.window
		w.check(s.returned == 0 || s.id == "" || s.id != p.id, "player %d stores after Stop of its message, under %q", p.uid, id)
		w.check(!all || id == "" || id != s.work, "player %d answers a message that Stop without an ID has closed", p.uid)
		w.check(!all || !known && !old || p.write && p.local && p.began > p.sent, "player %d stores after Stop without an ID; known %t, old %t", p.uid, known, old)
	}
}

// isStopped reports whether a Stop may have ended the work of a lease.
func (p *player) isStopped() bool {
	return slices.ContainsFunc(p.calls, func(s *call) bool { return s.id == "" || s.id == p.id })
}

// judgeStop judges a lease that was asked, or that the store calls ended. If a failover loses an
// ask, later waiters behind the stopped lease may end. This is a limit of the protocol.
func (p *player) judgeStop(ended bool) {
	ok := slices.ContainsFunc(p.calls, func(s *call) bool {
		return (s.returned == 0 || s.returned >= p.began) && (s.id == "" || s.id == p.id && !ended) && !(ended && s.failed)
	})
	p.check(ok || when(ended, p.failedOver, p.interrupting), "player %d ends by a Stop that had returned; at the store: %t", p.uid, ended)
}

// judge judges the whole schedule.
func (w *world) judge() {
	entries, asked, graces := map[string]int{}, false, false
	for _, id := range w.log {
		entries[id]++
	}
	for _, id := range w.messages {
		w.check(entries[id] == 0 || entries[id] == 1 && w.fates[id] == answered, "%s is stored %d times, and is %q", id, entries[id], w.fates[id])
	}
	var newest *player // of the first players of each message; alone: no other one is about as new
	first, alone := map[string]bool{}, true
	for _, p := range w.players {
		w.check(!p.result.closed() || w.fates[p.id].closed(), "player %d returns ErrStopped, but %s is %q", p.uid, p.id, w.fates[p.id])
		w.check(p.result != stopped || len(w.calls) > 0, "player %d is stopped without a Stop", p.uid)
		if asked, graces = asked || p.asked, graces || p.grace > 0; !first[p.id] {
			alone = newest == nil || newest.began < p.began-15
			first[p.id], newest = true, p
		}
	}
	w.check(w.mode != "duplicates" || !asked && !w.fates["m0"].closed(), "copies of one message interrupt each other")
	if w.mode == "interrupts" && !w.faults {
		w.check(len(entries) > 1 || len(entries) == 1 && entries[""] == 0, "no message is answered")
		w.check(!alone || w.fates[newest.id] == answered, "the newest message %s is %q", newest.id, w.fates[newest.id])
		for _, p := range w.players {
			w.check(p.result != interrupted || graces, "player %d has ErrInterrupted, but its message is open", p.uid)
		}
	}
}
