package distlock

import "context"

// Observers joins several Observers: Start in order, End in reverse. It leaves out an Observer whose
// method Enabled() bool returns false.
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

// started is the context that the Start of one Observer returned, and finds that of the Observer before.
// A Start that panicked has none.
type started struct {
	context.Context
	by       *observers
	op       *Operation
	observer Observer
	before   *started
}

// startedKey finds the last started of the observers.
type startedKey struct{ *observers }

func (s *started) Value(key any) any {
	if k, ok := key.(startedKey); ok && k.observers == s.by {
		return s
	}
	return s.Context.Value(key)
}

func (o *observers) Start(ctx context.Context, op *Operation) context.Context {
	if o.reports != nil {
		op.Namespace = o.reports.locker.opts.Namespace
	}
	var before *started
	for _, each := range o.each {
		if s := o.start(ctx, each, op); s != nil {
			s.before = before
			ctx, before = s, s
		}
	}
	return ctx
}

func (o *observers) start(ctx context.Context, each Observer, op *Operation) (s *started) {
	defer o.reports.survive(ctx, "Observer.Start", op)
	if next := each.Start(ctx, op); next != nil {
		ctx = next
	}
	return &started{Context: ctx, by: o, op: op, observer: each}
}

// End skips an Observer whose Start panicked. Without the span of Start in the context, it might end the
// span of the caller.
func (o *observers) End(ctx context.Context, op *Operation) {
	s, _ := ctx.Value(startedKey{o}).(*started)
	for ; s != nil && s.op == op; s = s.before { // else it is that of an operation around op
		o.end(s, op)
	}
}

func (o *observers) end(s *started, op *Operation) {
	defer o.reports.survive(s.Context, "Observer.End", op)
	s.observer.End(s.Context, op)
}
