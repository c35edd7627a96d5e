package campaign

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
)

// run carries out an order of the parent.
func (p *process) run(o *order) {
	until := now() + int64(o.For)
	switch o.Do {
	case doStarve:
		p.starve(o.For)
	case doPool:
		p.usePool(o.For)
	case doCancel:
		p.hasty.Store(until)
	case doExpire:
		p.mem.failing[o.Locker].Store(until)
		p.rooms[o.Locker].slow.Store(until)
	case doSlow:
		for _, r := range p.rooms {
			r.slow.Store(until)
		}
	case doClose:
		p.reopen(p.rooms[o.Locker])
	case doBlock, doPanic:
		p.breakHooks(&hookFault{panics: o.Do == doPanic, until: until})
	case doReach:
		p.aim.Store(o.Aim)
	case doHold, doStand:
		p.stage(o)
	case doMeet:
		if strings.Contains(o.Key, "/talk-") {
			p.answer(o)
		} else {
			p.stage(o)
		}
	case doRest:
		p.resting.Store(true)
		p.working.Wait()
		_ = p.parent.Send(reply{})
	case doRead:
		var s reply
		ctx, cancel := context.WithTimeout(lockedmemory.WithSession(context.Background(), o.Key), 5*time.Second)
		defer cancel()
		var err error
		if s.Stored, err = p.rooms[0].now().store.Load(ctx, ""); err != nil {
			s.Error = err.Error()
		}
		_ = p.parent.Send(s)
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

// usePool takes all connections of the application, with commands that wait.
func (p *process) usePool(d time.Duration) {
	var calls sync.WaitGroup
	use := func(call func(ctx context.Context, n int) error) {
		for n := range 3 * pool {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), d+time.Second)
				defer cancel()
				_ = call(ctx, n)
			})
		}
	}
	if p.pool != nil {
		use(func(ctx context.Context, _ int) error {
			_, err := p.pool.Exec(ctx, "SELECT pg_sleep($1)", d.Seconds())
			return err
		})
	} else {
		for _, client := range append(slices.Clone(p.nodes), p.client) {
			use(func(ctx context.Context, n int) error { return client.BLPop(ctx, d, fmt.Sprint("nothing-", n)).Err() })
		}
	}
	calls.Wait()
}

// breakHooks breaks the hooks. In memory no fault of a server strikes at the same time, so a lease has
// to outlast the fault, unless the process was not let run.
func (p *process) breakHooks(f *hookFault) {
	if p.mem == nil {
		p.witness.fault.Store(f)
		return
	}
	start := time.Now()
	lease, err := p.rooms[0].now().locker.TryAcquire(context.Background(), fmt.Sprint("hooks/", f.until))
	p.witness.fault.Store(f)
	if err != nil { // the Locker is being closed
		return
	}
	time.Sleep(time.Duration(f.until - now()))
	err = lease.Err()
	if stalled := p.watch.Stalled(start, time.Now()); errors.Is(err, distlock.ErrLost) && stalled < p.config.TTL/4 {
		p.tell(&said{What: sayWrong, Text: fmt.Sprintf("the hooks were broken, and a lease was lost: %v", err)})
	}
	_ = lease.Release(context.Background())
}

// reopen closes a Locker under load, and gives the room another one.
func (p *process) reopen(r *room) {
	old, name := r.now().locker, r.now().name
	p.recorders.closed(epoch(now(), p.config.Start, p.config.Rotate), name)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := old.Close(ctx); err != nil {
		p.tell(&said{What: sayWrong, Text: fmt.Sprintf("Close: %v", err)})
	}
	if err := r.furnish(); err != nil {
		p.tell(&said{What: sayWrong, Text: fmt.Sprintf("another Locker: %v", err)})
	}
}

// stage waits in the queue of a key, and holds it for a time.
func (p *process) stage(o *order) {
	h, err := p.rooms[0].hand(0, o.Key)
	if err != nil {
		return
	}
	defer h.line.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		began := now()
		lease, err := h.room.now().locker.Acquire(ctx, o.Key, distlock.WithWait(-1))
		switch {
		case err == nil:
			h.section(lease, began, false, func(*distlock.Lease) { h.rest(o.For) })
			h.ended(lease.Release(ctx), true)
			h.tell(&said{What: sayAlive})
			return
		case o.Do == doMeet && errors.Is(err, driver.ErrForeign):
			h.counts["unavailable"]++ // as it should be, until that is taken away
			h.rest(20 * time.Millisecond)
		default:
			h.ended(err, false)
		}
		if ctx.Err() != nil || p.ending.Load() {
			return
		}
	}
}

// answer answers one message, or does something else with its session, for as long as that takes,
// within 5 s.
func (p *process) answer(o *order) {
	h, err := p.rooms[0].hand(0, o.Key)
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
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until) && !h.over(); h.rest(20 * time.Millisecond) {
		a := t.do()
		h.tell(&said{What: sayAttempt, Attempt: a})
		if a.acknowledged() {
			return
		}
	}
}
