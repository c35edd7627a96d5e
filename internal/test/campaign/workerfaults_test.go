package campaign

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// holderKilled is the fault whose recoveries are a figure of their own.
const holderKilled = "holder killed"

var workerFaults = []*fault{
	{name: holderKilled, on: everywhere, of: ofWorker, barred: true, strike: killHolder},
	{name: "holder stopped", on: everywhere, breaks: true, of: ofWorker, short: 1200 * ms, long: 2500 * ms, strike: stop},
	{name: "killed at a moment of a turn", on: everywhere, of: ofWorker, turns: true, barred: true, strike: killAt},
	{name: "stopped at a moment of a turn", on: everywhere, breaks: true, of: ofWorker, turns: true, short: 1200 * ms, long: 2500 * ms, strike: stopAt},
	{name: "waiter killed in the queue", on: everywhere, of: ofWorker, barred: true, strike: killWaiter},
	{name: "shut down", on: everywhere, of: ofWorker, barred: true, strike: shutDown},
	{name: "contexts cancelled", on: everywhere, of: ofWorker, short: 300 * ms, long: 1200 * ms, strike: command(doCancel)},
	{name: "starved", on: everywhere, of: ofWorker, short: 500 * ms, long: 2000 * ms, strike: command(doStarve)},
}

// killHolder kills a worker, in a moment in which it works with something that others want.
func killHolder(c *campaign, h *hit) {
	w := c.someone(h)
	if w == nil {
		return
	}
	keys := c.catch(h, w, "")
	if len(keys) == 0 {
		return
	}
	w.Kill()
	c.await(h, w.run, keys, c.plan.bar())
	<-w.Done()
}

// catch stops a worker in a moment in which it works with something that others want, if that comes
// within a second, and returns what. It looks for something of a kind first, and takes anything
// then.
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
func stop(c *campaign, h *hit) {
	w := c.someone(h)
	if w == nil {
		return
	}
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
func killWaiter(c *campaign, h *hit) {
	victim, n := c.someone(h), len(c.slots)
	if victim == nil {
		return
	}
	holder, next := c.slots[(h.victim+1)%n].now(), c.slots[(h.victim+2)%n].now()
	if holder == nil || next == nil {
		c.misses(h, "there is no worker")
		return
	}
	key := fmt.Sprint("line/", h.n)
	hold := 400*time.Millisecond + between(h.rng, 0, 400*time.Millisecond)
	holder.tell(order{Do: doHold, Key: key, For: hold})
	servers.Within(time.Second, func() bool { return slices.Contains(c.register.holds(holder.run), key) })
	victim.tell(order{Do: doStand, Key: key})
	time.Sleep(100 * time.Millisecond)
	next.tell(order{Do: doStand, Key: key})
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
func shutDown(c *campaign, h *hit) {
	w := c.someone(h)
	if w == nil {
		return
	}
	keys := c.register.holds(w.run)
	_ = w.Signal(syscall.SIGTERM)
	c.await(h, w.run, keys, c.plan.bar())
	select {
	case <-w.Done():
	case <-time.After(15 * time.Second):
		c.blame(&finding{kind: "failure", at: now(), text: fmt.Sprintf("run %d does not end when it is told to", w.run)})
		w.Kill()
		<-w.Done()
	}
}

// command sends an order to a worker, which strikes itself.
func command(what string) func(*campaign, *hit) {
	return func(c *campaign, h *hit) {
		if w := c.someone(h); w != nil {
			w.tell(order{Do: what, For: h.lasts})
		}
	}
}
