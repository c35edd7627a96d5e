// Package balancer starts the instances, each a process. It plays the load balancer before them: it
// delivers every message until an instance has dealt with it. It also kills and pauses instances in the
// middle of turns.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/internal/test/child"
)

// Role is the name of the instances' role for child.Serve.
const Role = "instance"

// maxTries is how often a message is delivered again at most.
const maxTries = 25

// Plan is the work of a run: messages 0 to Turns-1 of each session.
type Plan struct {
	Instances, Sessions, Turns int
	Strikes                    int           // kills and pauses, in turns
	Pause                      time.Duration // the length of a pause
}

// Deliveries returns the number of deliveries without failures: every fifth message arrives twice.
func (p Plan) Deliveries() int { return p.Sessions * (p.Turns + (p.Turns+4)/5) }

// twice reports whether a message reaches two instances, as after a retry.
func twice(message int) bool { return message%5 == 0 }

// Outcome is what the instances have reported, and what has happened to them.
type Outcome struct {
	Ended         []Turn
	Spans         []Span
	Kills, Pauses int
	Again         int // repeated deliveries: the turn had failed, or its instance was killed
}

type balancer struct {
	Plan
	config   func(instance int) any
	answered func()

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // a queue or open has changed, or the ctx of the run has ended
	queues  [][]Delivery
	open    int      // deliveries without a successful turn
	strikes []Strike // that have not begun
	Outcome
}

// Run starts the instances, numbered from 1, each with its config, and has them deal with all
// messages. It calls answered after each successful turn. The first failure of an instance ends the run.
func Run(ctx context.Context, plan Plan, config func(instance int) any, answered func()) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &balancer{Plan: plan, config: config, answered: answered, queues: make([][]Delivery, plan.Instances), open: plan.Deliveries()}
	b.changed = sync.NewCond(&b.mu)
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})()
	for turn := range plan.Turns {
		for session := range plan.Sessions {
			b.enqueue(turn, Delivery{Session: session, Message: turn})
			if twice(turn) {
				b.enqueue(turn+1, Delivery{Session: session, Message: turn})
			}
		}
	}
	for i := range plan.Strikes {
		s := Strike{Place: history.Write, Kill: i%2 == 0}
		if s.Kill {
			s.Place = []history.Place{history.Answered, history.Write}[i/2%2]
		}
		b.strikes = append(b.strikes, s)
	}
	var all sync.WaitGroup
	for post := range plan.Instances {
		all.Go(func() {
			for killed := true; killed; {
				var err error
				if killed, err = b.instance(ctx, post); err != nil {
					cancel(fmt.Errorf("instance-%d: %w", post+1, err))
				}
			}
		})
	}
	all.Wait()
	return b.Outcome, context.Cause(ctx)
}

func (b *balancer) enqueue(post int, d Delivery) {
	post %= len(b.queues)
	b.queues[post] = append(b.queues[post], d)
}

// instance runs one process until it is killed by a strike, or there are no more messages.
func (b *balancer) instance(ctx context.Context, post int) (killed bool, err error) {
	c, err := child.StartRole(ctx, Role, b.config(post+1), os.Stderr)
	if err != nil {
		return false, err
	}
	defer func() {
		if ended := c.Close(); ended != nil {
			err = ended
		}
	}()
	for {
		d, ok := b.next(ctx, post)
		if !ok {
			return false, nil
		}
		if killed, err := b.deliver(ctx, c, post, d); killed || err != nil {
			return killed, err
		}
	}
}

// next waits for a delivery to an instance. Strikes are spread over the first four fifths of the
// messages, so that other messages wait for the conversation. Messages that
// reach two instances, or an instance again, are left out, because another instance may answer them.
func (b *balancer) next(ctx context.Context, post int) (d Delivery, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queues[post]) == 0 && b.open > 0 && ctx.Err() == nil {
		b.changed.Wait()
	}
	if b.open == 0 || ctx.Err() != nil {
		return d, false
	}
	d, b.queues[post] = b.queues[post][0], b.queues[post][1:]
	begun := b.Plan.Strikes - len(b.strikes)
	due := (b.Deliveries()-b.open)*5*b.Plan.Strikes >= b.Deliveries()*4*begun
	if len(b.strikes) > 0 && due && !twice(d.Message) && d.Tries == 0 {
		d.Strike, b.strikes = b.strikes[0], b.strikes[1:]
	}
	return d, true
}

// deliver has an instance deal with a message, and strikes it at the place for that.
func (b *balancer) deliver(ctx context.Context, c *child.Child, post int, d Delivery) (killed bool, err error) {
	_ = c.Send(d) // fails only if the instance has ended, which Receive shows
	for {
		var l Line
		if err := c.Receive(&l); err != nil {
			return false, fmt.Errorf("the instance ended in a turn: %w", err)
		}
		switch {
		case l.Span != nil:
			b.mu.Lock()
			b.Spans = append(b.Spans, *l.Span)
			b.mu.Unlock()
		case l.Turn != nil:
			return false, b.ended(post, d, *l.Turn)
		case d.Strike.Kill:
			c.Kill()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.Kills++
			b.again(post, d)
			return true, nil
		default:
			if err := b.pause(ctx, c); err != nil {
				return false, err
			}
			d.Strike = Strike{}
		}
	}
}

func (b *balancer) pause(ctx context.Context, c *child.Child) error {
	b.mu.Lock()
	b.Pauses++
	b.mu.Unlock()
	err := c.Pause()
	select {
	case <-time.After(b.Pause):
	case <-ctx.Done():
	}
	return errors.Join(err, c.Continue())
}

// ended is the end of a turn. d has a Strike if the turn did not reach its place.
func (b *balancer) ended(post int, d Delivery, t Turn) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Ended = append(b.Ended, t)
	if d.Strike.Place != "" {
		b.strikes = append(b.strikes, d.Strike)
	}
	switch {
	case t.Error == "":
		b.open--
		b.changed.Broadcast()
		b.answered()
	case d.Tries == maxTries:
		return fmt.Errorf("a message was delivered %d times, and its last turn ended with: %s", d.Tries+1, t.Error)
	default:
		b.again(post, d)
	}
	return nil
}

// again delivers a message to another instance, as the next one there.
func (b *balancer) again(post int, d Delivery) {
	b.Again++
	d.Tries++
	d.Strike = Strike{}
	next := (post + 1) % len(b.queues)
	b.queues[next] = slices.Insert(b.queues[next], 0, d)
	b.changed.Broadcast()
}
