package distlock

import (
	"context"
	"slices"
)

// Observers joins several Observers: Start in order, End in reverse.
func Observers(each ...Observer) Observer {
	joined := &observers{}
	for _, o := range each {
		switch o := o.(type) {
		case nil:
		case *observers:
			joined.each = append(joined.each, o.each...)
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

// startedKey finds the contexts that the Starts have returned. A Start that panicked has a nil context.
type startedKey struct{ *observers }

func (o *observers) Start(ctx context.Context, op *Operation) context.Context {
	if len(o.each) == 0 {
		return ctx
	}
	started := make([]context.Context, len(o.each))
	for i, each := range o.each {
		func() {
			defer o.reports.survive("Observer.Start", op)
			if next := each.Start(ctx, op); next != nil {
				ctx = next
			}
			started[i] = ctx
		}()
	}
	return context.WithValue(ctx, startedKey{o}, started)
}

// End skips an Observer whose Start panicked. Without the span of Start in the context, it might end the
// span of the caller.
func (o *observers) End(ctx context.Context, op *Operation) {
	started, _ := ctx.Value(startedKey{o}).([]context.Context)
	for i, own := range slices.Backward(started) {
		if own == nil {
			continue
		}
		func() {
			defer o.reports.survive("Observer.End", op)
			o.each[i].End(own, op)
		}()
	}
}
