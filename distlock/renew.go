package distlock

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

const (
	// abreast is how many batches are under way at once while the service keeps up: one that it works at, and one that is
	// made or read. Each costs a goroutine, and a connection.
	abreast = 2
	// stagger is how long more batches than that wait for an answer to come first. It is short: batches that are stuck
	// must not hold up the others.
	stagger = 25 * time.Millisecond
)

// renewals is the schedule of a Locker: one goroutine, alive while there are leases to renew, sends what is due
// in batches. A lease is either in the heap or in the one batch that renews it, never in both. It has no say in when a
// lease is lost by its deadline: the lease sees to that itself.
//
// Leases that are due together, as all are when the process has been stopped for a while, go out in a train of batches,
// and so are due one after the other the next time.
//
// Lock order: a lease's mu may be held when renewals' mu is taken, never the other way round.
type renewals struct {
	locker *Locker

	mu       sync.Mutex
	due      dueHeap
	underway int       // batches
	sent     time.Time // when the last of them was sent
	running  bool
	next     time.Time     // when the goroutine wakes up
	wake     chan struct{} // to make it earlier
	failing  int           // leases whose last renewal failed
	outage   time.Time     // when the first of them failed; zero if there are none
}

// renewal is a lease's place in the schedule, guarded by renewals.mu.
type renewal struct {
	due   time.Time
	place int // index in the heap + 1; 0: not in it
	// turn counts the lease's entries and exits, so that the answer of a batch tells whether it is still wanted.
	turn   int
	failed bool // the last one
}

// period is the time between two renewals of the lease; not positive: it is not renewed.
func (le *Lease) period() time.Duration {
	every := le.locker.opts.RenewEvery
	if every > 0 && le.ttl != le.locker.opts.TTL {
		every = le.ttl / 3
	}
	return every
}

// add schedules the lease's next renewal, unless it is not to be renewed then.
func (r *renewals) add(le *Lease, at trust.Moment) {
	due := time.Now().Add(trust.Until(at)) // timers know no other clock
	maxHold := r.locker.opts.MaxHold
	if le.period() <= 0 || maxHold > 0 && due.Sub(le.acquired) > maxHold {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeOut(le)
	le.renewal.due = due
	heap.Push(&r.due, le)
	switch {
	case !r.running:
		if !r.locker.begin() {
			return
		}
		r.running = true
		r.next = due
		r.wake = make(chan struct{}, 1)
		go r.run()
	case due.Before(r.next):
		r.wakeUp()
	}
}

func (r *renewals) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// remove takes a lease that ends off the schedule. The answer of a renewal that is under way no longer
// prolongs the lease.
func (r *renewals) remove(le *Lease) {
	r.pause(le)
	r.note(le, false)
	r.logOutage(nil)
}

// pause takes the lease off the schedule until it is added again.
func (r *renewals) pause(le *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeOut(le)
}

// note counts the leases whose last renewal failed.
func (r *renewals) note(le *Lease, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case failed && !le.renewal.failed:
		r.failing++
	case !failed && le.renewal.failed:
		r.failing--
	}
	le.renewal.failed = failed
}

// logOutage logs one line when an outage has begun, and another when it has ended. The first names err.
func (r *renewals) logOutage(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failing > 0 && r.outage.IsZero() && err != nil: // else the failed batch has yet to name it
		r.outage = time.Now()
		r.locker.log(slog.LevelWarn, "distlock: renewals failed; they are retried until the deadlines of the leases", "",
			"leases", r.failing, "error", err)
	case r.failing == 0 && !r.outage.IsZero():
		r.locker.log(slog.LevelInfo, "distlock: the outage of renewals is over: each lease was renewed or has ended", "",
			"outage", time.Since(r.outage))
		r.outage = time.Time{}
	}
}

// replace puts a lease in the place of another. If that is being renewed just now, the answer does not count for it.
func (r *renewals) replace(le, next *Lease) {
	r.mu.Lock()
	place := le.renewal.place
	if place > 0 {
		next.renewal.due, next.renewal.place = le.renewal.due, place
		r.due[place-1] = next
		le.renewal.place = 0
	}
	le.renewal.turn++
	next.renewal.failed, le.renewal.failed = le.renewal.failed, false
	r.mu.Unlock()
	if place == 0 {
		r.add(next, next.next)
	}
}

func (r *renewals) takeOut(le *Lease) {
	le.renewal.turn++
	if le.renewal.place == 0 {
		return
	}
	heap.Remove(&r.due, le.renewal.place-1)
	if len(r.due) == 0 && r.running && r.locker.closing.Err() != nil {
		r.wakeUp()
	}
}

// run sends what is due until the schedule is empty. That is noticed when an entry that has left would have been due,
// so a Locker that is in use keeps its goroutine; when the Locker closes, it is noticed at once.
func (r *renewals) run() {
	defer r.locker.end()
	timer := time.NewTimer(time.Hour) // set before each wait
	defer timer.Stop()
	closing := r.locker.closing.Done()
	for {
		batch, next, ok := r.collect(time.Now())
		if len(batch) > 0 {
			r.locker.background(func() { r.renew(batch) })
		}
		if !ok {
			return
		}
		timer.Reset(positive(time.Until(next)))
		select {
		case <-timer.C:
		case <-r.wake:
		case <-closing:
			closing = nil // leases that are being released stay on the schedule until they are
		}
	}
}

// ticket is one lease in a batch.
type ticket struct {
	lease *Lease
	turn  int           // when it was taken out of the heap
	epoch int           // when its renewal was sent
	left  time.Duration // until the deadline, likewise
	// patience is how long the ticket waits for the answer before its lease is due again.
	patience time.Duration
}

// collect takes out a batch of what is due by now or soon after: a renewal that is a little early saves an exchange. It
// takes nothing yet while more batches are under way than need be.
func (r *renewals) collect(now time.Time) (batch []*ticket, next time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underway < abreast || !now.Before(r.sent.Add(stagger)) {
		batch = r.takeLocked(now)
	}
	if len(batch) > 0 {
		r.underway++
		r.sent = now
	}
	if len(r.due) == 0 { // what was taken out starts the goroutine again when it comes back
		r.running = false
		return batch, next, false
	}
	r.next = r.due[0].renewal.due
	if turn := r.sent.Add(stagger); r.underway >= abreast && r.next.Before(turn) {
		r.next = turn
	}
	return batch, r.next, true
}

func (r *renewals) takeLocked(now time.Time) (batch []*ticket) {
	for len(r.due) > 0 && len(batch) < r.locker.maxBatch {
		le := r.due[0]
		slack := le.period() / 8
		if len(batch) == 0 {
			slack = 0 // nothing to join
		}
		if le.renewal.due.After(now.Add(slack)) {
			break
		}
		heap.Pop(&r.due)
		batch = append(batch, &ticket{lease: le, turn: le.renewal.turn})
	}
	return batch
}

// arrived makes room for another batch, when a batch has its answer or all its tickets are overdue.
func (r *renewals) arrived() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway--
	if r.running && r.underway == abreast-1 {
		r.wakeUp()
	}
}

// batch is the set of leases that one call of the driver renews.
type batch struct {
	renewals *renewals
	start    trust.Moment
	began    time.Time // the same, on Go's clock

	mu       sync.Mutex
	tickets  []*ticket   // the shortest patience first; nil when the driver has answered
	reported int         // how many of them are overdue, and reported
	timer    *time.Timer // runs overdue when the next patience ends
}

// renew sends one batch. The driver is called here and not detached: no caller wants to leave, and
// many leases make many batches.
//
// ⚑ Patience belongs to the lease: a lease near its deadline does not cut the time of the others. The
// call's context ends with the last deadline of the batch, as it was when the batch was sent: until
// then an answer still counts. It lasts a TTL at most, because calls that hang keep connections.
func (r *renewals) renew(tickets []*ticket) {
	l := r.locker
	tickets = slices.DeleteFunc(tickets, func(t *ticket) bool { return !r.valid(t) })
	if len(tickets) == 0 {
		r.arrived()
		return
	}
	slices.SortFunc(tickets, func(t, u *ticket) int { return cmp.Compare(t.patience, u.patience) })
	requests := make([]driver.ExtendRequest, len(tickets))
	var last time.Duration
	for i, t := range tickets {
		requests[i] = driver.ExtendRequest{Name: t.lease.name, Owner: t.lease.owner, TTL: t.lease.ttl}
		last = max(last, min(t.left, t.lease.ttl))
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.renewing, positive(last))
	defer cancel()
	b := &batch{renewals: r, start: trust.At(began), began: began, tickets: tickets}
	b.mu.Lock()
	b.waitLocked()
	b.mu.Unlock()
	b.answered(l.driver.Extend(ctx, requests))
}

// waitLocked sets the timer to the end of the next patience. If all tickets are overdue, it makes room
// for the next batch.
func (b *batch) waitLocked() {
	if b.reported == len(b.tickets) {
		b.renewals.arrived()
		return
	}
	rest := b.tickets[b.reported].patience - trust.Now().Sub(b.start)
	if b.timer == nil {
		b.timer = time.AfterFunc(positive(rest), b.overdue)
	} else {
		b.timer.Reset(positive(rest))
	}
}

// overdue schedules another renewal of the tickets whose patience has ended. An answer that comes
// later still counts.
func (b *batch) overdue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tickets == nil { // the answer came first
		return
	}
	took := trust.Now().Sub(b.start)
	var errs []error
	for _, t := range b.tickets[b.reported:] {
		if t.patience > took {
			break
		}
		err := fmt.Errorf("no answer within %s", t.patience.Round(time.Millisecond))
		errs = append(errs, b.renewals.answered(t, b.start, driver.ExtendReply{Err: err}))
	}
	b.reportLocked(errs)
	b.waitLocked()
}

// answered applies the replies to all tickets, and then reports the tickets that were not overdue.
func (b *batch) answered(replies []driver.ExtendReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer.Stop()
	if b.reported < len(b.tickets) {
		defer b.renewals.arrived()
	}
	errs := make([]error, len(b.tickets))
	for i, t := range b.tickets {
		errs[i] = b.renewals.answered(t, b.start, replies[i])
	}
	b.reportLocked(errs[b.reported:])
	b.tickets = nil
}

// reportLocked reports the next tickets, whose renewals ended with errs.
func (b *batch) reportLocked(errs []error) {
	l := b.renewals.locker
	b.renewals.logOutage(failure(errs))
	took := time.Since(b.began)
	for i, err := range errs {
		le := b.tickets[b.reported+i].lease
		l.reports.operation(le.ctx, &Operation{Name: OpExtend, Backend: l.backend, Key: le.name.Key, TTL: le.ttl, Fence: le.Fence(),
			Scheduled: true, Began: b.began, Wait: took, Attempts: 1, Err: err, Outcome: OutcomeOf(err)}, false)
	}
	b.reported += len(errs)
}

// failure is the last error that is not a loss.
func failure(errs []error) (last error) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrLost) {
			last = err
		}
	}
	return last
}

// valid prepares a ticket just before its renewal is sent: a lease may have been released or shortened since it was
// taken out.
func (r *renewals) valid(t *ticket) bool {
	t.lease.mu.Lock()
	defer t.lease.mu.Unlock()
	at := trust.Now()
	t.epoch, t.left = t.lease.trust.Epoch(), t.lease.trust.Left(at)
	t.patience = t.lease.trust.Patience(at, t.lease.period())
	return r.waitsFor(t)
}

// answered applies the outcome of one renewal that was sent at start, and returns it as an error. It may come late, after
// the schedule has gone on without it, or the lease has been released: then it is of no account.
func (r *renewals) answered(t *ticket, start trust.Moment, reply driver.ExtendReply) error {
	le := t.lease
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.state == released:
		return nil
	case le.state == lost:
		return le.ended
	case reply.Err != nil:
		if r.waitsFor(t) {
			r.note(le, true)
			r.add(le, le.trust.Retry(trust.Now(), le.period()))
		}
		return failedRead("renew", reply.Err) // it is tried again
	case !reply.Held: // final, however late it comes
		return le.lossLocked(errNotMine)
	}
	r.note(le, false)
	le.extendedLocked(start, le.ttl, t.epoch)
	if r.waitsFor(t) {
		r.add(le, start.Add(le.period()))
	}
	return nil
}

// waitsFor reports whether the lease's next renewal depends on the answer to t: not if it was released, extended by
// hand, or scheduled again since.
func (r *renewals) waitsFor(t *ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.lease.renewal.turn == t.turn
}

// dueHeap is a heap of leases by due time.
type dueHeap []*Lease

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].renewal.due.Before(h[j].renewal.due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].renewal.place, h[j].renewal.place = i+1, j+1
}
func (h *dueHeap) Push(x any) {
	le := x.(*Lease)
	*h = append(*h, le)
	le.renewal.place = len(*h)
}
func (h *dueHeap) Pop() any {
	old := *h
	le := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	le.renewal.place = 0
	return le
}
