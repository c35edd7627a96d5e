package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// answer is the answer of a node to a question.
type answer struct {
	pending bool // the node is asked, perhaps again
	silent  bool // see node.silent
	done    bool // reply and err are its last answer
	reply   Reply
	err     error
	young   bool // the node does not count
}

// replied reports whether the node has replied.
func (a *answer) replied() bool { return a.done && a.err == nil }

// refused reports whether the node has shown another owner.
func (a *answer) refused() bool { return a.replied() && a.reply.Outcome == Busy }

// poll is one question to the nodes, and their answers. Each call of a node has a goroutine of its
// own.
type poll struct {
	q         *quorum
	limit     time.Duration           // of each call
	report    func(driver.NodeAnswer) // may be nil
	asked     time.Time
	leastWait time.Duration // raceWait or roundWait
	decided   chan struct{} // closed at the end of the operation
	owes      bool          // once decided: a Release without an answer is sent again

	mu      sync.Mutex
	answers []answer // by node
	news    chan struct{}
}

// newPoll makes a poll. The operation closes decided at its end.
func newPoll(q *quorum, caller context.Context, limit time.Duration) *poll {
	return &poll{
		q:         q,
		limit:     limit,
		report:    driver.NodeAnswers(caller),
		asked:     time.Now(),
		leastWait: raceWait,
		decided:   make(chan struct{}),
		answers:   make([]answer, len(q.nodes)),
		news:      make(chan struct{}, 1),
	}
}

// expect notes that a node will be asked. ask does so itself.
func (p *poll) expect(n *node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[n.index].pending, p.answers[n.index].silent = true, n.silent()
}

// ask calls a node in the background. then, if it is not nil, gets the answer after the end of the
// operation.
//
// ⚑ The call does not end with its caller: a late answer is undone or counted.
func (p *poll) ask(n *node, call func(context.Context) (Reply, error), then func(Reply, error)) {
	p.expect(n)
	n.enter()
	p.q.calls.Go(func() {
		ctx, cancel := context.WithTimeout(p.q.life, p.limit)
		start := time.Now()
		reply, err := call(ctx)
		cancel()
		n.leave(reply.Clock, err == nil)
		p.answered(n, reply, err, time.Since(start))
		if then != nil {
			<-p.decided
			then(reply, err)
		}
	})
}

// answered notes the answer of a node.
func (p *poll) answered(n *node, reply Reply, err error, took time.Duration) {
	a := answer{done: true, reply: reply, err: err, young: n.young(took)}
	if p.report != nil { // the operation may end with this answer
		p.report(driver.NodeAnswer{Node: n.Name(), Answer: p.text(a), Took: took, Nodes: len(p.q.nodes), Quorum: p.q.size})
	}
	p.note(n, a)
}

// note notes an answer, or a result that needs no request.
func (p *poll) note(n *node, a answer) {
	p.mu.Lock()
	p.answers[n.index] = a
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// text describes an answer.
func (p *poll) text(a answer) string {
	switch {
	case !a.done:
		return "no answer yet"
	case errors.Is(a.err, context.DeadlineExceeded):
		return "no answer"
	case a.err != nil:
		return a.err.Error()
	case a.young:
		return fmt.Sprintf("%s, but its server is up for less than %s", a.reply.Outcome, p.q.restartDelay)
	default:
		return string(a.reply.Outcome)
	}
}

const (
	// raceWait is the least time that the other nodes have after a quorum has answered. A silent
	// node has less.
	raceWait = silentAfter
	// roundWait is the same after a repeated question.
	roundWait = 5 * time.Millisecond
)

// wait returns when decide returns true, or with the error of ctx. timeUp says that a quorum has
// answered, and that twice that time has passed since, and at least 100 ms.
func (p *poll) wait(ctx context.Context, decide func(answers []answer, timeUp bool) bool) error {
	var late <-chan time.Time
	timeUp := false
	for {
		p.mu.Lock()
		replies := 0
		for i := range p.answers {
			if p.answers[i].replied() {
				replies++
			}
		}
		decided, took, least := decide(p.answers, timeUp), time.Since(p.asked), p.leastWait
		p.mu.Unlock()
		if decided {
			return nil
		}
		if late == nil && replies >= p.q.size {
			timer := time.NewTimer(max(least, 2*took))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-p.news:
		case <-late:
			timeUp = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// agree waits for the decision of a request of a holder, see agree. If the nodes cannot agree, it waits
// for all answers if it is patient. effects is the number of nodes on which the request may have had
// an effect.
func (p *poll) agree(ctx context.Context, patient bool, counts func(*answer) bool) (agreed agreement, effects int, err error) {
	err = p.wait(ctx, func(answers []answer, _ bool) bool {
		var open int
		agreed, effects, open = agree(answers, p.q.size, counts)
		return agreed != awaiting && (agreed != unknown || open == 0 || !patient)
	})
	return agreed, effects, err
}
