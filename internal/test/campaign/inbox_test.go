package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// inboxSessions are those of an epoch in which questions are put, answered together, stopped and swept. In the
// second one, they are also superseded. The last one is also deleted, which makes its IDs unknown.
const inboxSessions = 3

func inboxOf(epoch, n int) string { return fmt.Sprintf("e%d/inbox-%d", epoch, n) }

const ( // What and End of calls, beside those of stops
	submits = "submits"
	newests = "submits, newest alone"
	puts    = "puts"

	accepted = "accepted"
	full     = "full"
	removed  = "removed" // the store says that a Delete was the cause
)

// boxes are the inboxes of a process. The last one supersedes.
var boxes = []inbox.Options{{}, {Quiet: 10 * time.Millisecond}, {Quiet: 5 * time.Millisecond, Most: 2}, {Newest: true}}

// workOn is the workload of a session with calls.
func workOn(session string) string {
	if strings.Contains(session, "/inbox-") {
		return "inbox"
	}
	return "stop"
}

// inboxWork makes one call on a session with an inbox, or sweeps all of them.
func (h *hand) inboxWork() {
	n, last := h.rng.IntN(inboxSessions), len(boxes)-1
	box, what := h.boxes[h.rng.IntN(last)], []string{submits, submits, submits, puts, puts, answers}[h.rng.IntN(6)]
	if h.rng.IntN(30) == 0 {
		ctx, cancel := h.limited()
		defer cancel()
		answered, err := box.Sweep(ctx, h.answersOpen(nil))
		if h.counts["inbox: answered by Sweeps"] += answered; endOf(err) == open {
			h.ended(err, err == nil)
		}
		return
	}
	if n == 1 && h.rng.IntN(8) == 0 {
		box, what = h.boxes[last], newests
	}
	h.messageWork(inboxOf(h.epoch(), n), n == inboxSessions-1, 3, what, func(ctx context.Context, c *stopCall) (string, error) {
		question := message{Role: conversation.Question, Write: c.ID}
		switch {
		case what == answers:
			return h.answerMessage(ctx, c)
		case what == puts && h.config.Broken == lostPut:
			return accepted, nil
		case what == puts:
			return accepted, h.memory.Put(ctx, c.ID, question)
		}
		answer, err := box.Submit(ctx, c.ID, question, h.answersOpen(c))
		if errors.Is(err, sessionstore.ErrDeleted) {
			return removed, nil
		} else if err == nil {
			c.Write = answer[0].Write
		}
		return answered, err
	})
}

// answersOpen returns the function of a call, or of a Sweep. It fails for a tenth, and for more of those that are
// several. Under each lease, the register has one section.
func (h *hand) answersOpen(call *stopCall) inbox.Func[message] {
	var last *distlock.Lease
	return func(ctx context.Context, open []lockedmemory.Question[message]) (answer []message, err error) {
		lease, ok := lockedmemory.Lease(ctx)
		if !ok {
			return nil, errors.New("an answer without a lease")
		}
		c := &stopCall{Run: h.config.Run, ID: open[0].ID, Begun: now(), Got: now()}
		if call != nil {
			c.Begun = call.Begun
			if slices.ContainsFunc(open, func(q lockedmemory.Question[message]) bool { return q.ID == call.ID }) {
				call.Got = c.Got
			}
		}
		inside := func(*distlock.Lease) { answer, err = h.inStop(ctx, c, open[0].Message) }
		if lease == last || h.section(lease, c.Begun, inside) == turnedAway {
			inside(lease) // the store is to refuse it
		}
		last = lease
		if h.rng.IntN(10) == 0 || len(open) > 1 && h.rng.IntN(5) == 0 {
			return nil, errPaused
		}
		return answer, err
	}
}

func (j *stopJudge) isInbox() bool { return workOn(j.session) == "inbox" }

// begun is when the session's time began.
func (j *stopJudge) begun() int64 {
	return j.c.start + int64(epochOf(j.session))*int64(j.c.plan.rotate)
}

// sweep sweeps all sessions. Nothing is pending in this one then, unless the Sweep has failed, or workers go on.
// In a Cluster, an earlier Sweep may have removed the session from the index before a Put that failed then.
func (j *stopJudge) sweep(ctx context.Context) error {
	box, err := inbox.New(j.memory, nil)
	if err != nil {
		return err
	}
	var pending []lockedmemory.Question[message]
	for range 2 { // a Put of a dead worker may come late
		_, failure := box.Sweep(ctx, func(_ context.Context, open []lockedmemory.Question[message]) ([]message, error) {
			c := &stopCall{ID: open[0].ID, Begun: now(), Got: now()}
			return []message{{Write: c.written()}}, nil
		})
		pending, err = j.memory.Pending(ctx)
		pending = slices.DeleteFunc(pending, func(q lockedmemory.Question[message]) bool {
			return j.c.service != nil && j.c.service.Cluster != nil && !j.pended([]string{q.ID}, now())
		})
		if err != nil || len(pending) == 0 {
			return err
		} else if failure != nil || j.soFar {
			return failure
		}
	}
	j.blame(j.begun(), "after a Sweep, there is pending %+v", pending)
	return nil
}

// pended reports whether a Put of one of these IDs was accepted before a moment, and no Delete came since.
func (j *stopJudge) pended(ids []string, before int64) bool {
	return slices.ContainsFunc(j.calls, func(c *stopCall) bool {
		return c.What == puts && c.End == accepted && slices.Contains(ids, c.ID) && c.Ended < before && !j.deleted(c.Begun)
	})
}
