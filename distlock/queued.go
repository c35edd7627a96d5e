package distlock

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/cleanup"
)

const (
	// checkEvery is how often a waiter in the service's line asks although nobody has called it, within a quarter more or
	// less: it never rests on a notification.
	checkEvery = 4 * time.Second
	// checkGrace is by how much longer than that it is kept in line.
	checkGrace = time.Second
	// maxPromise is the longest that comes of these two.
	maxPromise = checkEvery*5/4 + checkGrace
)

var errFull = errors.New("so many wait in line already that no more are let in: try again later")

// listen makes the acquisition stand in the service's line from its next request on. ⚑ It registers before it lines up: the
// hand-over may overtake the answer. Where wakes cannot be had, it stands in line all the same, and polls.
func (a *acquisition) listen() {
	a.lined = true
	if ticket := a.locker.lines.lineUp(a); a.req.Ticket == 0 {
		a.req.Ticket = ticket
	}
	wakes, deaf, err := a.locker.queue.Listen(a.giveUp, a.req.Name, a.req.Owner)
	if err != nil {
		if a.giveUp.Err() != nil { // it leaves, and that is why
			return
		}
		l := a.locker
		l.warnDeaf.Do(func() {
			l.log(slog.LevelWarn, "distlock: the backend cannot notify waiters, so they poll from their places in the queue; check the right to subscribe and the network",
				a.req.Name.Key, "error", err)
		})
		return
	}
	a.wakes, a.deaf = wakes, deaf
	a.called.Store(true)
}

// reenter begins anew, at its old place, for an acquisition that was handed the lock and has not claimed it in time: its
// owner can hold the lock no more. An owner that was refused without having stood in line is another matter: so would be the next.
func (a *acquisition) reenter() {
	a.entered = false
	if a.deaf != nil {
		a.deaf()
	}
	a.undo()
	a.wakes, a.deaf, a.doubt = nil, nil, false
	a.called.Store(false)
	a.req.Owner = newOwner()
	a.listen()
}

// promise prepares the next request of a waiter in line: how soon the one after it will follow, and for how long the
// service is to keep its place. ⚑ No place is kept for longer than most of a TTL, so that the dead do not hold up the living: if a
// process dies that holds the lock and stands in line for it too, its place is not to outlast its lock by a little. The lock would be
// handed to it, for the least time there is, and be free just after a TTL and a second.
func (a *acquisition) promise() {
	if !a.lined {
		return
	}
	a.req.Seq++
	a.check = min(checkEvery*3/4+rand.N(checkEvery/2), a.req.TTL/2).Truncate(time.Millisecond)
	a.req.Alive = min(a.check+checkGrace, a.req.TTL*9/10).Truncate(time.Millisecond)
}

// woken makes the lease of a hand-over, or returns nil: then the acquisition has to ask.
//
// ⚑ The lease may begin at once, on what is left of the hand-over's TTL. That began after the last request which the service
// had handled before, so it is counted from when that one was sent; what is not known to be such a request does not count.
// If too little is left, the answer to a claim has to be awaited first.
func (a *acquisition) woken(wake driver.Wake) *Lease {
	behind := a.req.Seq - wake.Seq
	if wake.Grant.Outcome != driver.Granted || wake.Seq < 1 || behind < 0 || behind >= int64(len(a.sent)) || a.locker.opts.RenewEvery < 0 {
		return nil
	}
	sent := a.sent[behind]
	// ⚑ It lasts for no longer than was promised, whatever the message says: who can send one might say anything.
	ttl := min(wake.TTL, max(min(maxPromise, a.req.TTL), driver.MinHandover))
	a.op.Handoff = HandoffRemote
	lease, err := a.granted(wake.Grant, sent, ttl)
	if err != nil {
		return nil // the next attempt claims the grant, or finds the Locker closed
	}
	return lease
}

// undo takes back what the service may have been told.
func (a *acquisition) undo() {
	req := driver.ReleaseRequest{Name: a.req.Name, Owner: a.req.Owner, Leave: a.lined}
	if a.doubt {
		req.VoidFor = cleanup.Tombstone(a.req.TTL)
	}
	if a.doubt || req.Leave {
		a.locker.cleaner.Add(req, a.req.TTL, 0)
	}
}
