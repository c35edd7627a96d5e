package campaign

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// run carries out an order of the parent.
func (p *process) run(o *order) {
	until := now() + int64(o.For)
	switch o.Do {
	case doStarve:
		p.starve(o.For)
	case doCancel:
		p.hasty.Store(until)
	case doSlow:
		p.slow.Store(until)
	case doReach:
		p.aim.Store(o.Aim)
	case doHold, doStand:
		p.stage(o)
	case doMeet:
		p.answer(o)
	}
}

// starve has busy loops take the process's only processor.
func (p *process) starve(d time.Duration) {
	before := runtime.GOMAXPROCS(1)
	var loops sync.WaitGroup
	for range 6 {
		loops.Go(func() {
			for until := now() + int64(d); now() < until; {
			}
		})
	}
	loops.Wait()
	runtime.GOMAXPROCS(before)
}

// stage waits in the queue of a key, and holds it for a time.
func (p *process) stage(o *order) {
	h, err := p.hand(0, o.Key)
	if err != nil {
		return
	}
	defer h.line.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil && !p.ending.Load() {
		began := now()
		lease, err := h.locker.Acquire(ctx, o.Key, distlock.WithWait(-1))
		if err == nil {
			h.section(lease, began, func(*distlock.Lease) { h.rest(o.For) })
			h.ended(lease.Release(ctx), true)
			h.tell(&said{What: sayAlive})
			return
		}
		h.ended(err, false)
	}
}

// answer answers one message, or does something else with its session, for as long as that takes,
// within 5 s.
func (p *process) answer(o *order) {
	h, err := p.hand(0, o.Key)
	if err != nil {
		return
	}
	defer h.line.conn.Close()
	t := &task{hand: h, kind: aTurn, session: o.Key, turn: int(h.next()), named: true}
	if o.Kind != "" {
		t.kind = o.Kind
	}
	if o.Turn != 0 {
		t.turn = o.Turn
	}
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until) && !h.ending.Load(); h.rest(20 * time.Millisecond) {
		a := t.do()
		h.tell(&said{What: sayAttempt, Attempt: a})
		if a.acknowledged() {
			return
		}
	}
}
