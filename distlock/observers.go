package distlock

import (
	"context"
	"slices"
)

// Observers joins Observers, but for those whose Enabled() bool returns false.
func Observers(each ...Observer) Observer {
	joined := &observers{}
	for _, o := range each {
		switch o := o.(type) {
		case nil:
		case *observers:
			joined.each = append(joined.each, o.each...)
		case interface{ Enabled() bool }:
			if o.Enabled() {
				joined.each = append(joined.each, o.(Observer))
			}
		default:
			joined.each = append(joined.each, o)
		}
	}
	return joined
}

// observers calls Observers behind a recover.
type observers struct {
	each    []Observer
	reports *reports // logs panics; nil outside a Locker
}

// started is an Observer whose Start has returned, and the context that it returned.
type started struct {
	by       *observers
	observer Observer
	ctx      context.Context
}

func (o *observers) Start(ctx context.Context, op *Operation) context.Context {
	if r := o.reports; r != nil {
		op.Backend, op.Namespace = r.locker.caps.Backend, r.locker.opts.Namespace
	}
	for _, each := range o.each {
		ctx = o.start(ctx, each, op)
	}
	return ctx
}

func (o *observers) start(ctx context.Context, each Observer, op *Operation) (next context.Context) {
	defer o.reports.survive(ctx, "Observer.Start", op)
	next = ctx // also after a panic
	if own := each.Start(ctx, op); own != nil {
		next = own
	}
	op.started = append(op.started, started{o, each, next})
	return next
}

// End skips an Observer whose Start panicked. Without the span of Start in the context, it might end the
// span of the caller.
func (o *observers) End(_ context.Context, op *Operation) {
	for _, s := range slices.Backward(op.started) {
		if s.by == o {
			o.end(s, op)
		}
	}
}

func (o *observers) end(s started, op *Operation) {
	defer o.reports.survive(s.ctx, "Observer.End", op)
	s.observer.End(s.ctx, op)
}
