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
type answer[R any] struct {
	pending bool // the node is asked, perhaps again
	silent  bool // see node.silent
	done    bool // reply and err are its last answer
	reply   R
	err     error
	young   bool // the node does not count
}

// replied reports whether the node has replied.
func (a *answer[R]) replied() bool { return a.done && a.err == nil }

// poll is one question to the nodes, and their answers. Each call of a node has a goroutine of its
// own.
type poll[R any] struct {
	q         *quorum
	limit     time.Duration           // of each call
	report    func(driver.NodeAnswer) // may be nil
	word      func(R) string          // an answer in a word
	asked     time.Time
	leastWait time.Duration // raceWait or roundWait
	decided   chan struct{} // closed at the end of the operation

	mu      sync.Mutex
	answers []answer[R] // by node
	news    chan struct{}
}

// newPoll makes a poll. The operation closes decided at its end.
func newPoll[R any](q *quorum, caller context.Context, limit time.Duration, word func(R) string) *poll[R] {
	return &poll[R]{
		q:         q,
		limit:     limit,
		report:    driver.NodeAnswers(caller),
		word:      word,
		asked:     time.Now(),
		leastWait: raceWait,
		decided:   make(chan struct{}),
		answers:   make([]answer[R], len(q.nodes)),
		news:      make(chan struct{}, 1),
	}
}

// expect notes that the node is about to be asked.
func (p *poll[R]) expect(n *node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[n.index].pending, p.answers[n.index].silent = true, n.silent()
}

// ask calls a node that is expected to answer, in the background. then, if it is not nil, follows
// the answer and the end of the operation.
//
// ⚑ The call does not end with its caller: a late answer is undone or counted.
func (p *poll[R]) ask(n *node, call func(context.Context) (R, error), then func()) {
	n.enter()
	p.q.calls.Go(func() {
		ctx, cancel := context.WithTimeout(p.q.life, p.limit)
		start := time.Now()
		reply, err := call(ctx)
		cancel()
		n.leave(err == nil)
		p.answered(n, reply, err, time.Since(start))
		if then != nil {
			<-p.decided
			then()
		}
	})
}

// answered notes the answer of a node that was expected.
func (p *poll[R]) answered(n *node, reply R, err error, took time.Duration) {
	a := answer[R]{done: true, reply: reply, err: err, young: n.young(took)}
	if p.report != nil { // the operation may end with this answer
		p.report(driver.NodeAnswer{Node: n.Name(), Answer: p.text(n, a), Took: took, Nodes: len(p.q.nodes), Quorum: p.q.size})
	}
	p.note(n, a)
}

// note notes an answer, or a result that needs no request.
func (p *poll[R]) note(n *node, a answer[R]) {
	p.mu.Lock()
	p.answers[n.index] = a
	open := 0
	for i := range p.answers {
		if p.answers[i].pending {
			open++
		}
	}
	p.mu.Unlock()
	if open <= len(p.answers)-p.q.size { // else there is nothing to decide
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
}

// text describes an answer.
func (p *poll[R]) text(n *node, a answer[R]) string {
	switch {
	case !a.done:
		return "no answer yet"
	case errors.Is(a.err, context.DeadlineExceeded):
		return "no answer"
	case a.err != nil:
		return a.err.Error()
	case a.young:
		return fmt.Sprintf("%s, but its server is up for less than %s", p.word(a.reply), n.youth())
	default:
		return p.word(a.reply)
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
func (p *poll[R]) wait(ctx context.Context, decide func(answers []answer[R], timeUp bool) bool) error {
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

// again begins another question to some of the nodes.
func (p *poll[R]) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.leastWait = time.Now(), roundWait
}
