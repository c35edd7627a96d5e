package belugarunner

import (
	"context"
	"iter"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"

	"github.com/belugalock/belugalock/distlock"
)

// Stopped is the metadata of the turn and of the done event of a run that was stopped, and whose events so far
// are stored, see Options.KeepPartial. Its value is true.
const Stopped = "belugarunner.stopped"

// watchedAgent is the agent of a run. ⚑ It works in a goroutine of its own, the pump: after a stop, the worker goes
// on without an agent that ignores its context.
type watchedAgent struct {
	agent.Agent
	run *run
}

type item struct {
	event agent.Event
	err   error
}

// Stream yields the events of the agent, and returns after the agent. A stop of a run that keeps its events cuts
// the agent: then they end with a done event.
func (a watchedAgent) Stream(ctx context.Context, input string, opts ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		r := a.run
		work, end := context.WithCancelCause(ctx)
		defer end(distlock.ErrInterrupted) // of an agent that was cut
		items, over := make(chan item), make(chan struct{})
		defer close(over)
		r.pumping.Store(true)
		go a.pump(work, input, opts, items, over)
		asked := r.lease.Context().Done()
		text, some := "", false
		for {
			select {
			case it := <-items:
				if it.err != nil && r.wasAsked() { // ⚑ a tool that has the lease fails before the cut
					a.cut(text, some, yield)
					return
				}
				r.hidden = it.err
				if it.event.Type == agent.EventText {
					text += it.event.Text
				}
				if r.opts.Stream && it.err == nil && it.event.Type != agent.EventDone {
					r.feed.add(it.event) // ⚑ here, not in the pump: a reader would see what a cut does not store
				}
				if some = true; !yield(it.event, it.err) {
					<-r.pumped
					return
				}
			case <-r.pumped:
				return
			case <-asked:
				if r.wasAsked() {
					a.cut(text, some, yield)
					return
				}
				asked = nil // a loss, or the events are not kept: the contexts end
			}
		}
	}
}

// cut ends the events. Without one, the run fails.
func (a watchedAgent) cut(text string, some bool, yield func(agent.Event, error) bool) {
	if !some {
		a.run.hidden = distlock.ErrInterrupted
		yield(agent.Event{Type: agent.EventError, AgentID: a.ID()}, distlock.ErrInterrupted)
		return
	}
	a.run.cut = true
	yield(agent.Event{Type: agent.EventDone, AgentID: a.ID(), Text: text, Metadata: map[string]any{Stopped: true}}, nil)
}

// pump runs the agent. It releases the lease if the agent panics, which ends the process. ⚑ It does not recover,
// so that the trace of the panic shows the agent. ⚑ It returns false to the agent only after an error: an agent of
// Beluga 2.13.2 that yields an event after a false panics.
func (a watchedAgent) pump(ctx context.Context, input string, opts []agent.Option, items chan<- item, over <-chan struct{}) {
	panics := true
	defer func() {
		if panics && a.run.owns {
			_ = a.run.lease.Release(context.WithoutCancel(ctx))
		}
	}()
	a.Agent.Stream(ctx, input, opts...)(func(event agent.Event, err error) bool {
		select {
		case items <- item{event, err}:
		case <-over:
		}
		return err == nil
	})
	panics = false
	close(a.run.pumped)
}

// wasAsked reports whether a run that keeps its events was asked to end. The lease says so: the context of a run
// inside another one also ends with a stop of that.
func (r *run) wasAsked() bool {
	return r.keeps && context.Cause(r.lease.Context()) == distlock.ErrInterrupted
}

// detached returns the context of the worker of a run that keeps its events, or goes on without its reader. It ends
// with the lease, and with the reader, or at the latest time after the reader has left. ⚑ The ask of a run that keeps
// its events does not end it, or plugins would not see them: it then lasts as the lease.
func (r *run) detached(work, reader context.Context, latest time.Time) (context.Context, func()) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(work))
	until := func(at time.Time) {
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
		}
	}
	stays := context.AfterFunc(reader, func() {
		if r.goesOn {
			r.feed.end(nil, reader.Err())
			until(latest)
		}
		end(reader.Err())
	})
	context.AfterFunc(r.lease.Context(), func() {
		// ⚑ The renewal that follows a notice moves the deadline.
		for r.wasAsked() && ctx.Err() == nil && time.Now().Before(r.lease.Deadline()) {
			until(r.lease.Deadline())
		}
		end(context.Cause(r.lease.Context()))
	})
	return ctx, func() { stays(); end(nil) }
}
