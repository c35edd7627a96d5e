package distlock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

const (
	// checkEvery is how often a waiter in the backend's queue asks without a notification, within a
	// quarter more or less: no waiter rests on a notification. A waiter that polls tries as often to
	// be notified.
	checkEvery = 4 * time.Second
	// checkGrace is for how much longer its place is kept.
	checkGrace = time.Second
	// maxPromise is the longest life of a place that these two give.
	maxPromise = checkEvery*5/4 + checkGrace
)

var errFull = errors.New("the queue is full: try again later")

// place is the place of an acquisition in the backend's queue.
type place struct {
	wanted    bool               // its requests ask for a place
	joined    bool               // the backend has answered this owner with a place
	wakes     <-chan driver.Wake // nil: the backend does not notify, and the acquisition polls
	stopWakes func()
	listened  time.Time       // when the last Listen returned
	sent      [2]trust.Moment // when the last request and the one before it were sent
	askWithin time.Duration   // the promised time from a request to the next
}

// joinQueue has the next requests ask for a place in the backend's queue. ⚑ It registers for
// notifications first: the handoff may overtake the answer. ⚑ The limit leaves time for the next request.
func (a *acquisition) joinQueue(ctx context.Context, limit time.Duration) {
	a.place.wanted = true
	a.req.Ticket = cmp.Or(a.req.Ticket, a.last.ticket)
	a.listen(ctx, limit)
}

// listen registers for notifications. Without them the acquisition keeps its place and polls.
func (a *acquisition) listen(ctx context.Context, limit time.Duration) {
	l := a.locker
	if l.listener == nil {
		return
	}
	a.place.stop()
	listening, cancel := context.WithTimeout(ctx, atLeastOneTick(limit))
	defer cancel()
	wakes, stop, err := l.listener.Listen(listening, a.req.Name, a.req.Owner)
	a.place.wakes, a.place.stopWakes, a.place.listened = wakes, stop, time.Now()
	switch {
	case err == nil:
		a.waiter.Notified.Store(true)
	case errors.Is(err, errors.ErrUnsupported): // the driver wraps one without notifications
	case ctx.Err() == nil: // else its end is the reason
		l.warnNoWakes.Do(func() {
			l.log(ctx, slog.LevelWarn, "distlock: the backend cannot notify waiters, so they poll; "+
				"check the right to subscribe and the network", a.req.Name.Key, "error", err)
		})
	}
}

func (p *place) stop() {
	if p.stopWakes != nil {
		p.stopWakes()
	}
}

// reenter begins anew, at its old place, after a handoff that was not claimed in time: that owner
// can never hold the lock. It does not help a cancelled owner that never joined the queue, because
// the next owner would be cancelled, too.
func (a *acquisition) reenter(ctx context.Context, limit time.Duration) {
	a.place.stop()
	a.undo()
	a.place, a.copiesMayArrive = place{}, false
	a.waiter.Notified.Store(false)
	a.req.Owner = newOwner()
	a.req.Seq = 0
	a.joinQueue(ctx, limit)
}

// promise prepares the next request of a waiter in the backend's queue: how soon the one after it
// follows, and for how long the backend keeps its place. ⚑ No place outlives nine tenths of a TTL.
// A process that holds the lock and waits for it may die: its place must not outlive its lock by a
// little. Else the backend would hand the lock to the dead place for at least a second, and the
// lock would be free just after a TTL and a second.
func (a *acquisition) promise() {
	if !a.place.wanted {
		return
	}
	a.req.Seq++
	a.place.askWithin = min(checkEvery*3/4+rand.N(checkEvery/2), a.req.TTL/2).Truncate(time.Millisecond)
	a.req.Alive = min(a.place.askWithin+checkGrace, a.req.TTL*9/10).Truncate(time.Millisecond)
}
