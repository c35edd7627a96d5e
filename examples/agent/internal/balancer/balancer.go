// Package balancer starts the instances, each a process, and plays the load balancer in front of them and
// the chaos among them: it delivers every message of a user until an instance has reported that it is dealt
// with, and kills and pauses instances in the middle of turns.
package balancer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/hitch"
	"github.com/belugalock/belugalock/examples/agent/internal/metrics"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

// often is how often a message is delivered at most.
const often = 25

// Plan says what is to be delivered: messages 0 to Turns-1 of each session.
type Plan struct {
	Instances, Sessions, Turns int
	Chaos
}

// Chaos says what befalls instances in the middle of turns.
type Chaos struct {
	Strikes int           // how often one is struck: killed and paused in turns
	Pause   time.Duration // for how long
	// KillNode, unless nil, is called after half of the strikes. It ends a node of the lock.
	KillNode func()
}

// Deliveries is how many there are at least. Every fifth message is delivered twice, as after a
// retry.
func (p Plan) Deliveries() int { return p.Sessions * (p.Turns + (p.Turns+4)/5) }

// Delivery is a message on its way to an instance.
type Delivery struct {
	Session, Message int
	Hitch            hitch.Place // where its turn takes longer, if anywhere
	Tries            int         // how often it was delivered before
}

// Tally is what has happened besides.
type Tally struct {
	Kills, Pauses int
	Nodes         int // nodes of the lock that were killed
	Again         int // deliveries of messages whose turn had failed, or had no end because its instance was killed
}

// Run has instances with cfg deal with all messages. Line is told every span, and the tally so far;
// page is told the metrics of an instance.
func Run(ctx context.Context, cfg any, plan Plan, line func(spans.Span, Tally),
	page func(instance int, metrics []byte) error,
) (Tally, error) {
	b := &balancer{Plan: plan, line: line, page: page, open: plan.Deliveries(), posts: make([]post, plan.Instances)}
	for n := range plan.Turns * plan.Sessions {
		turn, session := n/plan.Sessions, n%plan.Sessions
		b.enqueue(turn, Delivery{Session: session, Message: turn})
		if twice(turn) {
			b.enqueue(turn+1, Delivery{Session: session, Message: turn})
		}
	}
	for i := range plan.Strikes {
		s := strike{kill: i%2 == 0, place: hitch.Write}
		if s.kill {
			s.place = []hitch.Place{hitch.Answer, hitch.Model, hitch.Write}[i/2%3]
		}
		b.strikes = append(b.strikes, s)
	}
	err := b.run(ctx, cfg)
	return b.tally, err
}

// report is a line of an instance: a span, or metrics.
type report struct {
	spans.Span
	metrics.Line
}

// twice tells which messages reach two instances, as after a retry.
func twice(message int) bool { return message%5 == 0 }

type balancer struct {
	Plan
	line func(spans.Span, Tally)
	page func(instance int, metrics []byte) error

	mu      sync.Mutex // of all that follows
	open    int        // deliveries that have not been dealt with
	posts   []post
	strikes []strike // that have not begun
	tally   Tally
}

// heard deals with a line of an instance.
func (b *balancer) heard(i *instance, r report) error {
	if r.Metrics != nil {
		return b.page(i.number, r.Metrics)
	}
	defer func() { b.line(r.Span, b.tally) }()
	switch r.Name {
	case hitch.Span:
		return b.strike(i)
	case spans.Turn:
		return b.ended(i, r.Error)
	}
	return nil
}

// post is where an instance works; one that was killed leaves it to another.
type post struct {
	instance *instance // nil if there is none just now
	queue    []Delivery
	at       *Delivery // what the instance deals with
	struck   *strike   // what will befall it
}

// strike is what befalls an instance, and where.
type strike struct {
	kill  bool
	place hitch.Place
}

func (b *balancer) post(number int) *post { return &b.posts[number%len(b.posts)] }

func (b *balancer) enqueue(number int, d Delivery) {
	p := b.post(number)
	p.queue = append(p.queue, d)
}

func (b *balancer) of(i *instance) *post { return b.post(i.number - 1) }

func (b *balancer) begun(i *instance) {
	b.of(i).instance = i
	b.next(b.of(i))
}

// next gives the instance of a post something to do, if there is anything.
func (b *balancer) next(p *post) {
	switch {
	case p.instance == nil || p.at != nil:
	case b.open == 0:
		p.instance.tell(nil) // there will be no more
	case len(p.queue) > 0:
		d := p.queue[0]
		p.at, p.queue = &d, p.queue[1:]
		b.aim(p)
		p.instance.tell(*p.at)
	}
}

// aim decides whether chaos meets the turn that begins. Chaos is spread over the first four fifths of
// the messages, so that other messages wait for the conversation. It leaves out a message at two
// instances, because the other instance may answer it.
func (b *balancer) aim(p *post) {
	p.struck, p.at.Hitch = nil, ""
	done, begun := b.Deliveries()-b.open, b.Strikes-len(b.strikes)
	if len(b.strikes) == 0 || twice(p.at.Message) || done*5*b.Strikes < b.Deliveries()*4*begun {
		return
	}
	s := b.strikes[0]
	p.struck, b.strikes = &s, b.strikes[1:]
	p.at.Hitch = s.place
}

// strike kills or pauses an instance that has reached the place for it.
func (b *balancer) strike(i *instance) error {
	if b.KillNode != nil && b.tally.Nodes == 0 && b.tally.Kills+b.tally.Pauses >= b.Strikes/2 {
		b.KillNode()
		b.tally.Nodes++
	}
	p := b.of(i)
	s := p.struck
	if p.struck = nil; s.kill {
		b.tally.Kills++
		return i.kill()
	}
	b.tally.Pauses++
	return i.pause(b.Pause, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = resume(i.cmd.Process) // unless it has ended
	})
}

// ended is the end of a turn that was reported.
func (b *balancer) ended(i *instance, failure string) error {
	p := b.of(i)
	d := b.leave(p)
	if failure == "" {
		b.open--
	} else if d.Tries == often {
		return fmt.Errorf("a message was delivered %d times, and its last turn ended with: %s", d.Tries+1, failure)
	} else {
		b.again(i, *d)
	}
	for i := range b.posts { // if this was the last one, all are dismissed
		b.next(&b.posts[i])
	}
	return nil
}

// leave is the end of what a post is at.
func (b *balancer) leave(p *post) (d *Delivery) {
	if p.struck != nil { // the turn did not come that far
		b.strikes = slices.Insert(b.strikes, 0, *p.struck)
	}
	d, p.at, p.struck = p.at, nil, nil
	return d
}

// killed is the end of an instance, and of its turn, about which nothing more will be known.
func (b *balancer) killed(i *instance) {
	p := b.of(i)
	p.instance = nil
	if d := b.leave(p); d != nil {
		b.again(i, *d)
	}
}

// again delivers a message to another instance than i, as the next one there.
func (b *balancer) again(i *instance, d Delivery) {
	b.tally.Again++
	d.Tries++
	p := b.post(i.number) // the next one: numbers count from 1, posts from 0
	p.queue = slices.Insert(p.queue, 0, d)
	b.next(p)
}
