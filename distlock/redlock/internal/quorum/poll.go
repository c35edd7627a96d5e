package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// answer is what a node has said to a question.
type answer[R any] struct {
	pending bool // the node is asked, perhaps again
	done    bool // reply and err are its last answer
	reply   R
	err     error
	young   bool // the node does not count
}

// said reports whether the node has replied.
func (a *answer[R]) said() bool { return a.done && a.err == nil }

// open reports whether a decision has to wait for the node. A final one takes the answers as they are.
func (a *answer[R]) open(final bool) bool { return a.pending && !final }

// poll is one question to the nodes, and their answers. Each call of a node has a goroutine of its own.
type poll[R any] struct {
	q      *quorum
	ctx    context.Context // of the calls
	cancel context.CancelFunc
	tell   func(driver.NodeAnswer) // may be nil
	word   func(R) string          // an answer in a word
	asked  time.Time

	mu      sync.Mutex
	answers []answer[R] // by node
	users   int         // the operation, and the calls that use ctx
	news    chan struct{}
}

// newPoll makes a poll whose calls end after the limit. The operation calls done when it needs no
// further answer.
func newPoll[R any](q *quorum, caller context.Context, limit time.Duration, word func(R) string) *poll[R] {
	p := &poll[R]{
		q:       q,
		tell:    driver.NodeAnswers(caller),
		word:    word,
		asked:   time.Now(),
		answers: make([]answer[R], len(q.nodes)),
		users:   1,
		news:    make(chan struct{}, 1),
	}
	life, cancel := context.WithTimeout(q.life, max(limit, 1))
	p.ctx, p.cancel = &withValues{life, caller}, cancel
	return p
}

// withValues is a context with the values of another. ⚑ It does not end with the caller's: an answer
// that nobody waits for is undone, or counted.
type withValues struct {
	context.Context
	caller context.Context
}

func (c *withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.caller.Value(key)
}

// done gives up a use of the poll's context.
func (p *poll[R]) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.cancel()
	}
}

// expect notes that the node is about to be asked.
func (p *poll[R]) expect(n *node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[n.index].pending = true
	p.users++
}

// ask calls a node that is expected to answer, in the background, and then after, if it is not nil.
func (p *poll[R]) ask(n *node, call func(context.Context) (R, error), after func()) {
	if !n.enter() {
		var none R
		p.answered(n, none, errFull, 0)
		if after != nil {
			after()
		}
		return
	}
	p.q.calls.Go(func() {
		defer n.leave()
		p.call(n, call)
		if after != nil {
			after()
		}
	})
}

// call calls a node that is expected to answer.
func (p *poll[R]) call(n *node, call func(context.Context) (R, error)) {
	start := time.Now()
	reply, err := call(p.ctx)
	p.answered(n, reply, err, time.Since(start))
}

// answered notes the answer of a node that was expected.
func (p *poll[R]) answered(n *node, reply R, err error, took time.Duration) {
	defer p.done()
	a := answer[R]{done: true, reply: reply, err: err, young: p.q.young(n, took)}
	p.mu.Lock()
	p.answers[n.index] = a
	done := 0
	for i := range p.answers {
		if p.answers[i].done {
			done++
		}
	}
	p.mu.Unlock()
	if done >= p.q.size { // else there is nothing to decide
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
	if p.tell != nil {
		p.tell(driver.NodeAnswer{Node: n.Name, Answer: p.text(a), Took: took, Nodes: len(p.q.nodes), Quorum: p.q.size})
	}
}

// text describes an answer.
func (p *poll[R]) text(a answer[R]) string {
	switch {
	case !a.done:
		return "no answer yet"
	case a.err != nil:
		return a.err.Error()
	case a.young:
		return fmt.Sprintf("%s, but its server is up for less than %s", p.word(a.reply), p.q.delay())
	default:
		return p.word(a.reply)
	}
}

// slowest is how long the other nodes have at least when a quorum has answered.
const slowest = 20 * time.Millisecond

// wait returns when decide returns true, or with the error of ctx. When a quorum of nodes has answered
// without a decision, the others have as long again, twice, and at least 20 ms. Then the decision is
// final: decide returns true.
func (p *poll[R]) wait(ctx context.Context, decide func(answers []answer[R], final bool) bool) error {
	var slow <-chan time.Time
	final := false
	for {
		p.mu.Lock()
		said, pending := 0, 0
		for i := range p.answers {
			if p.answers[i].pending {
				pending++
			} else if p.answers[i].said() {
				said++
			}
		}
		decided := decide(p.answers, final || pending == 0)
		p.mu.Unlock()
		if decided {
			return nil
		}
		if slow == nil && said >= p.q.size {
			timer := time.NewTimer(max(slowest, 2*time.Since(p.asked)))
			defer timer.Stop()
			slow = timer.C
		}
		select {
		case <-p.news:
		case <-slow:
			final = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
