package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/lockedmemory"
)

// stopSessions are those of an epoch in which messages are answered, stopped and interrupted. The last one
// is also deleted, which makes its IDs unknown.
const stopSessions = 3

// arrival is the time between two messages of such a session. All processes count them by the clock.
const arrival = 60 * time.Millisecond

func stopOf(epoch, n int) string { return fmt.Sprintf("e%d/stop-%d", epoch, n) }

// stopCall is an Answer, a Stop or a Delete. The parent hears of it when it begins and when it has returned.
type stopCall struct {
	Run               int
	Session, What, ID string
	Begun, Got, Ended int64 // Got: fn began
	End, Error        string
	Write             string // of the answer
	place             lockedmemory.Place
}

const ( // What, and End of any call
	answers    = "answers"
	interrupts = "interrupts" // answers with the policy Interrupt
	stops      = "stops"
	deletes    = "deletes"

	open        = "open"     // the caller has an error that says repeat
	answered    = "answered" // of a Stop: it has returned true; of a Delete: done
	stopped     = "stopped"  // of a Stop: it has returned false
	superseded  = "superseded"
	interrupted = "interrupted"
	gone        = "gone"
)

// endOf is what an error says of a message.
func endOf(err error) string {
	for _, of := range []struct {
		err error
		end string
	}{
		{lockedmemory.ErrSuperseded, superseded}, {lockedmemory.ErrStopped, stopped}, {distlock.ErrInterrupted, interrupted},
		{lockedmemory.ErrAnswerGone, gone}, {lockedmemory.ErrInboxFull, full},
	} {
		if errors.Is(err, of.err) {
			return of.end
		}
	}
	return open
}

// call makes a call, and tells of it.
func (h *hand) call(c *stopCall, do func() (end string, err error)) string {
	c.Run, c.Begun = h.config.Run, now()
	h.tell(&said{What: sayCall, Call: c})
	end, err := do()
	if c.Ended, c.End = now(), end; err != nil {
		c.End, c.Error = endOf(err), err.Error()
	}
	if c.End == open {
		h.ended(err, false)
	}
	h.counts[fmt.Sprintf("%s: %s, %s", workOn(c.Session), c.What, c.End)]++
	h.tell(&said{What: sayCall, Call: c})
	return c.End
}

// stopWork makes one call on a session of stops: a tenth of the Answers interrupt.
func (h *hand) stopWork() {
	if _, plain := h.store.(*document); plain {
		return
	}
	n, what := h.rng.IntN(stopSessions), answers
	if h.rng.IntN(9) == 0 {
		what = interrupts
	}
	h.messageWork(stopOf(h.epoch(), n), n == stopSessions-1, 1, what, h.answerMessage)
}

// messageWork makes one call on a session: a tenth of a part are Stops, few are Deletes and edits, and do makes the
// others. So many times more messages are under way.
func (h *hand) messageWork(session string, deleted bool, part int, what string, do func(context.Context, *stopCall) (string, error)) {
	ctx, cancel := h.limited()
	defer cancel()
	c := &stopCall{Session: session, What: what}
	ctx = lockedmemory.WithSession(ctx, session)
	message := func(back int) string {
		return fmt.Sprint("m", (now()-h.config.Start)/int64(arrival)-int64(h.rng.IntN(back)))
	}
	switch kind := h.rng.IntN(80 * part); {
	case kind < 8:
		if c.What = stops; h.rng.IntN(3) > 0 {
			c.ID = message(8)
		}
		h.call(c, func() (string, error) { return h.stop(ctx, c.ID) })
		return
	case kind == 8 && deleted:
		c.What = deletes
		h.call(c, func() (string, error) { return answered, h.memory.Delete(ctx) })
		return
	case kind < 12:
		if err := h.edit(ctx); endOf(err) == open {
			h.ended(err, err == nil)
		}
		return
	}
	c.ID = message(4 * part)
	for try, end := 0, open; end == open && try < 3 && ctx.Err() == nil && h.ctx.Err() == nil; try++ {
		again := *c // the parent has the other
		end = h.call(&again, func() (string, error) { return do(ctx, &again) })
		h.rest(between(h.rng, 0, 20*time.Millisecond))
	}
}

func (h *hand) stop(ctx context.Context, id string) (string, error) {
	grace := max(0, between(h.rng, -300*time.Millisecond, 300*time.Millisecond))
	if h.config.Broken == idleStop {
		return stopped, nil
	}
	if stored, err := h.memory.Stop(ctx, id, grace); stored || err != nil {
		return answered, err
	}
	return stopped, nil
}

// edit replaces an exchange in a turn by itself.
func (h *hand) edit(ctx context.Context) error {
	return h.memory.Turn(ctx, func(ctx context.Context) error {
		last, err := h.memory.Last(ctx, 1+h.rng.IntN(3))
		if err != nil || len(last) == 0 {
			return err
		}
		h.rest(between(h.rng, 0, 5*time.Millisecond))
		h.counts["stop: edits"]++
		return h.memory.Replace(ctx, last[0].Place, last[0].Place, last[0])
	})
}

func (h *hand) answerMessage(ctx context.Context, c *stopCall) (string, error) {
	memory := h.memory
	if c.What == interrupts {
		memory = h.interrupts[h.rng.IntN(len(h.interrupts))]
	}
	question := message{Role: conversation.Question, Write: c.ID}
	answer, err := memory.Answer(ctx, c.ID, question, func(ctx context.Context) (answer []message, err error) {
		lease, ok := lockedmemory.Lease(ctx)
		if !ok {
			return nil, errors.New("an Answer without a lease")
		}
		c.Got = now()
		inside := func(*distlock.Lease) { answer, err = h.inStop(ctx, c, question) }
		if h.section(lease, c.Begun, inside) == turnedAway {
			inside(lease) // the store is to refuse it
		}
		return answer, err
	})
	if err == nil {
		c.Write = answer[0].Write
	}
	return answered, err
}

// written names a write of an Answer's work, by the times that the judge needs.
func (c *stopCall) written() string {
	return fmt.Sprint(c.ID, " ", c.Run, " ", c.Begun, " ", c.Got, " ", now())
}

// inStop is the work of an Answer: some ms, rarely more. It may store parts of its own. A quarter of the work
// ignores its context, and then writes past all checks, as a process does that was paused before its write.
func (h *hand) inStop(ctx context.Context, c *stopCall, question message) ([]message, error) {
	lasts, ignores, parts := between(h.rng, 0, 30*time.Millisecond), h.rng.IntN(4) == 0, h.rng.IntN(3) == 0
	if h.rng.IntN(10) == 0 {
		lasts = between(h.rng, 100*time.Millisecond, 400*time.Millisecond)
	}
	if now() < h.slow.Load() {
		lasts = h.config.TTL
	}
	heard := ctx.Done()
	if ignores {
		heard = nil
	}
	for until := now() + int64(lasts); now() < until; {
		if parts {
			if err := h.memory.Append(ctx, message{Write: c.written()}); err != nil && !ignores {
				return nil, err
			}
		}
		select {
		case <-heard:
			if until = 0; context.Cause(ctx) != distlock.ErrInterrupted || h.rng.IntN(2) == 0 {
				return nil, ctx.Err()
			} // or it returns what it has
		case <-time.After(min(time.Duration(until-now()), 10*time.Millisecond)):
		}
	}
	answer := []message{{Role: conversation.Answer, Write: c.written()}}
	if ctx.Err() != nil && ignores {
		past := context.WithoutCancel(ctx)
		err := errors.Join(h.store.Append(past, message{Write: c.written()}), h.store.SaveOnce(past, c.ID, question, answer[0]))
		h.counts[fmt.Sprintf("stop: writes past all checks, stored %t", err == nil)]++
	}
	return answer, nil
}

// calls are those on the sessions of stops, which the parent judges when their epoch is over.
type calls struct {
	c  *campaign
	mu sync.Mutex
	of map[string]map[string]*stopCall // by session, and by the begin
}

func (l *calls) add(c *stopCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[c.Session] == nil {
		l.of[c.Session] = make(map[string]*stopCall)
	}
	l.of[c.Session][fmt.Sprint(c.Run, c.What, c.ID, c.Begun)] = c
}

// judgeUntil judges the sessions whose time was over before a moment; in the end all of them. With soFar, a
// server is about to lose all of them: they are judged without the messages that are under way.
func (l *calls) judgeUntil(moment int64, last, soFar bool) {
	var due []string
	l.mu.Lock()
	for session := range l.of {
		if last || soFar || epochOf(session) < epoch(moment, l.c.start, l.c.plan.rotate) {
			due = append(due, session)
		}
	}
	l.mu.Unlock()
	if len(due) == 0 {
		return
	}
	memory, closing, err := l.c.memory()
	if err != nil && !last {
		return // later
	} else if err != nil {
		l.c.t.Fatal(err)
	}
	defer closing()
	for _, session := range due {
		all := func() []*stopCall {
			l.mu.Lock()
			defer l.mu.Unlock()
			return slices.Collect(maps.Values(l.of[session]))
		}
		j := &stopJudge{c: l.c, memory: memory, session: session, all: all, calls: all(), soFar: soFar}
		if err = j.judge(); err == nil && !soFar {
			l.mu.Lock()
			delete(l.of, session)
			l.mu.Unlock()
		} else if err != nil && last {
			l.c.blame(&finding{kind: "failure", at: now(), text: "a session of stops in the end: " + err.Error()})
		}
	}
}

// stopJudge compares the final state of a session's messages with the words that callers had.
type stopJudge struct {
	c       *campaign
	memory  *locked
	session string
	all     func() []*stopCall
	calls   []*stopCall
	soFar   bool
}

func (j *stopJudge) judge() error {
	ctx, cancel := context.WithTimeout(lockedmemory.WithSession(context.Background(), j.session), 30*time.Second)
	defer cancel()
	all := make(map[string][]*stopCall)
	for _, c := range j.calls {
		if c.ID != "" {
			all[c.ID] = append(all[c.ID], c)
		}
	}
	if j.isInbox() {
		if err := j.sweep(ctx); err != nil {
			return err
		}
	}
	ends := make(map[string]*stopCall)
	for id, calls := range all {
		if j.soFar && slices.ContainsFunc(calls, func(c *stopCall) bool { return c.Ended == 0 || c.End == open }) {
			continue
		}
		end, err := j.settle(ctx, id)
		if err != nil {
			return err
		}
		ends[id] = end
	}
	exchanges, err := collect(j.memory.Forward(ctx, lockedmemory.Place{}), 0)
	if err != nil {
		return err
	}
	stored := make(map[string][]string)
	for _, e := range exchanges {
		write := e.Messages[len(e.Messages)-1].Write
		ids := slices.DeleteFunc(append([]string{e.ID}, e.Also...), func(id string) bool { return id == "" })
		j.entry(ids, write)
		for n, id := range ids {
			stored[id] = append(stored[id], write)
			if end := ends[id]; j.isInbox() && (e.Messages[n].Write != id || end != nil && end.End == answered && end.place != e.Place && !j.soFar) {
				j.blame(j.begun(), "%+v stands under %q, which is %+v", e, id, end)
			}
		}
		if len(ids) > 1 {
			j.c.count("inbox: exchanges of several questions", 1)
		}
	}
	j.calls = append(j.calls, j.all()...) // ⚑ a Delete may have come since
	for id, end := range ends {
		j.message(id, end, all[id], stored[id])
	}
	return nil
}

// settle returns the final state of a message. A repetition settles one that is open.
func (j *stopJudge) settle(ctx context.Context, id string) (*stopCall, error) {
	c := &stopCall{ID: id, Begun: now(), Got: now(), End: answered}
	exchange, known, err := j.memory.Answered(ctx, id)
	switch {
	case known && err == nil:
		c.Write, c.place = exchange.Answer()[0].Write, exchange.Place
	case err == nil && (j.soFar || j.isInbox()):
		c.End = open
	case err == nil:
		j.c.count("stop: settled in the end", 1)
		_, err = j.memory.Answer(ctx, id, message{Write: id}, func(context.Context) ([]message, error) {
			c.Write = c.written()
			return []message{{Write: c.Write}}, nil
		})
	}
	if err == nil {
		return c, nil
	} else if c.End = endOf(err); c.End == superseded {
		c.End = stopped
	}
	if c.End == stopped || c.End == gone {
		return c, nil
	}
	return nil, err
}

// atOnce is how soon a waiter is known to the lock, on a machine that lets all processes run.
const atOnce = 400 * time.Millisecond

// overlaps reports whether a call may have had an effect between two moments. A call without an end, or with
// an unknown one, may have an effect at any later time.
func (c *stopCall) overlaps(from, until int64) bool {
	return c.Begun <= until && (c.Ended == 0 || c.End == open || c.Ended >= from)
}

// entry judges one stored exchange: no Stop had returned that concerns its work when its write began.
func (j *stopJudge) entry(ids []string, write string) {
	var of string
	var run, begun, got, sent int64
	if _, err := fmt.Sscanf(write, "%s %d %d %d %d", &of, &run, &begun, &got, &sent); err != nil || len(ids) > 0 && ids[0] != of {
		j.blame(0, "a strange exchange %q under %q", write, ids)
		return
	} else if len(ids) == 0 && !j.isInbox() { // there, the work of a Sweep goes on without the message
		ids = []string{of}
	}
	for _, s := range j.calls {
		if s.What != stops || s.End != stopped && (s.End != answered || s.ID != "") || s.Ended >= sent {
			continue
		}
		switch {
		case slices.Contains(ids, s.ID) && j.deleted(s.Begun): // it was open again
		case slices.Contains(ids, s.ID), s.ID == "" && (got < s.Begun || j.pended(ids, s.Begun)):
			j.blame(min(begun, s.Begun), "%q stands under %q of %q, although %+v", write, ids, of, *s)
		case s.ID == "" && begun < s.Begun-int64(atOnce): // see the limits in docs/howto/stop.md
			j.c.count("stop: waiters that outlived one", 1)
			if j.c.windows.others(nil, begun, s.Ended) == nil && j.c.watch.Stalled(time.Unix(0, begun), time.Unix(0, s.Ended)) < atOnce/4 {
				j.blame(min(begun, s.Begun), "%q stands under %q, and waited long before %+v", write, ids, *s)
			}
		}
	}
}

// deleted reports whether a Delete may have made the session's IDs unknown since a moment.
func (j *stopJudge) deleted(since int64) bool {
	return slices.ContainsFunc(j.calls, func(c *stopCall) bool { return c.What == deletes && c.overlaps(since, now()) })
}

// message judges one message: it has one final state, which no caller's word contradicts, and a cause.
func (j *stopJudge) message(id string, end *stopCall, calls []*stopCall, stored []string) {
	slices.SortFunc(calls, func(a, b *stopCall) int { return int(a.Begun - b.Begun) })
	from := calls[0].Begun
	blame := func(text string) {
		for _, c := range calls {
			text += fmt.Sprintf("\n\t%+v", *c)
		}
		j.blame(from, "%s is %s %q, stored as %q: %s", id, end.End, end.Write, stored, text)
	}
	deleted := j.deleted(from)
	j.c.count(workOn(j.session)+": messages "+end.End, 1)
	if len(stored) > 1 || end.End == answered && len(stored) != 1 && !deleted && !j.soFar || end.End == stopped && len(stored) > 0 {
		blame("its final state contradicts the history")
	}
	for _, c := range calls {
		closed, until := c.End == stopped || c.End == superseded, c.Ended
		switch {
		case c.End == removed && !j.deleted(0):
			blame(fmt.Sprintf("no Delete explains what run %d was told at %d", c.Run, c.Ended))
		case deleted: // it is open again
		case c.End == accepted && end.End == open:
			blame("it was accepted, and is not answered")
		case c.End == answered && (end.End != answered || c.Write != "" && c.Write != end.Write), closed && end.End != stopped:
			blame(fmt.Sprintf("another state than run %d was told at %d", c.Run, c.Ended))
		case c.Got != 0 && slices.ContainsFunc(calls, func(s *stopCall) bool {
			return s.What == stops && s.End == stopped && s.Ended < c.Begun
		}):
			blame(fmt.Sprintf("it ran again, at %d", c.Got))
		}
		if c.End == accepted && end.End == stopped && !deleted {
			closed, until = true, now()
		}
		since, ask := from, c.End == interrupted && !j.isInbox() // there, a Stop of another question may have been the cause
		if ask {
			since = c.Begun
		}
		explained := slices.ContainsFunc(j.calls, func(s *stopCall) bool {
			switch {
			case s.What == stops && s.ID == id:
				return s.Begun < until
			case s.What == interrupts && s.ID != id, s.What == newests:
				return c.End != stopped && s.overlaps(since, until)
			}
			return s.What == stops && s.ID == "" && c.End != superseded && s.overlaps(since, until)
		})
		if c.What != stops && (ask && !deleted || closed) && !explained {
			blame(fmt.Sprintf("no call explains the %s of run %d at %d", c.End, c.Run, c.Ended))
		}
	}
}

// blame blames the library, unless servers have lost data since a moment.
func (j *stopJudge) blame(since int64, format string, args ...any) {
	if f := j.c.windows.forgetful(j.session, since, now()); f != nil {
		j.c.mu.Lock()
		defer j.c.mu.Unlock()
		j.c.stat(f).apart[workOn(j.session)]++
		return
	}
	j.c.blame(&finding{kind: workOn(j.session), key: j.session, at: max(since, j.c.start), never: true, text: j.session + ": " + fmt.Sprintf(format, args...)})
}

// memory is one for the parent.
func (c *campaign) memory() (m *locked, over func(), err error) {
	p, closing := &process{config: config{TTL: c.plan.ttl, Works: c.plan.works}}, func() {}
	if c.postgres != nil {
		if p.pool, err = openPostgres(c.database.URL(), nil); err != nil {
			return nil, nil, err
		}
		closing = p.pool.Close
	} else {
		p.client = c.client()
		closing = func() { _ = p.client.Close() }
	}
	if err = p.furnish(); err != nil {
		closing()
		return nil, nil, err
	}
	return p.memory, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.locker.Close(ctx)
		closing()
	}, nil
}
