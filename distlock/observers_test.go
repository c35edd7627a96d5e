package distlock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// named is an Observer that notes its calls, checks the context of End, and panics on demand.
type named struct {
	name   string
	calls  *[]string
	panics string
}

type namedKey string

func (n named) Start(ctx context.Context, op *distlock.Operation) context.Context {
	n.note("start")
	return context.WithValue(ctx, namedKey("started"), n.name)
}

func (n named) End(ctx context.Context, op *distlock.Operation) {
	if ctx.Value(namedKey("started")) != n.name {
		panic("End with the context of another Observer")
	}
	n.note("end")
}

func (n named) note(call string) {
	*n.calls = append(*n.calls, call+" "+n.name)
	if n.panics == call {
		panic("on demand")
	}
}

func TestObservers_callsEachWithItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		panics string
		want   []string
	}{
		"":      {"", []string{"start a", "start b", "start c", "end c", "end b", "end a"}},
		"start": {"start", []string{"start a", "start b", "start c", "end c", "end a"}},
		"end":   {"end", []string{"start a", "start b", "start c", "end c", "end b", "end a"}},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				var calls []string
				inner := distlock.Observers(named{"b", &calls, c.panics}, nil)
				l := s.locker(t, distlock.Options{
					Observer: distlock.Observers(named{"a", &calls, ""}, inner, named{"c", &calls, ""}),
				})
				lease := mustAcquire(t, l)
				if !slices.Equal(calls, c.want) {
					t.Errorf("called were %q, want %q", calls, c.want)
				}
				mustRelease(t, lease)
				if len(calls) != 2*len(c.want) {
					t.Errorf("called were %q", calls)
				}
			})
		})
	}
}

// An Observer that wraps others keeps their contexts apart, also without a Locker.
func TestObservers_nestedKeepTheirContexts(t *testing.T) {
	var calls []string
	nested := distlock.Observers(wrapper{distlock.Observers(named{"a", &calls, ""})}, named{"b", &calls, ""})
	op := &distlock.Operation{Began: time.Now()}
	nested.End(nested.Start(t.Context(), op), op)
	if want := []string{"start a", "start b", "end b", "end a"}; !slices.Equal(calls, want) {
		t.Errorf("called were %q, want %q", calls, want)
	}
}

// wrapper hides the type of an Observer.
type wrapper struct{ distlock.Observer }

// An Observer that is off is not called.
func TestObservers_leaveOutTheDisabled(t *testing.T) {
	var calls []string
	off := disabled{named{"off", &calls, ""}, false}
	joined := distlock.Observers(off, disabled{named{"on", &calls, ""}, true}, distlock.Observers(off))
	op := &distlock.Operation{}
	joined.End(joined.Start(t.Context(), op), op)
	if want := []string{"start on", "end on"}; !slices.Equal(calls, want) {
		t.Errorf("called were %q, want %q", calls, want)
	}
}

type disabled struct {
	distlock.Observer
	on bool
}

func (d disabled) Enabled() bool { return d.on }
