package distlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

func TestAcquisition_next(t *testing.T) {
	refusal, silence := driver.ErrRefused, errors.New("silence")
	answered := func(a *acquisition) { a.last.busy = &BusyError{} }
	wants := func(a *acquisition) { a.place.wanted = true }
	type facts = []func(*acquisition)
	for name, c := range map[string]struct {
		facts facts
		full  bool
		err   error
		want  next
	}{
		"busy":                             {want: joins},
		"busy, in the queue":               {facts: facts{wants}, want: pauses},
		"busy, asked once":                 {facts: facts{func(a *acquisition) { a.once = true }}, want: ends},
		"full":                             {facts: facts{wants}, full: true, want: ends},
		"without a queue or notifications": {facts: facts{func(a *acquisition) { a.locker.caps.Queues = false }}},
		"silence at first":                 {err: silence, want: fails},
		"silence after an answer":          {facts: facts{answered}, err: silence, want: joins},
		"silence, in the queue":            {facts: facts{answered, wants}, err: silence, want: pauses},
		"turned away at first":             {facts: facts{wants}, err: driver.ErrTemporary, want: pauses},
		"refused after an answer":          {facts: facts{answered, wants}, err: refusal, want: fails},
		"cancelled before it joined":       {facts: facts{answered}, err: errCancelled, want: fails},
		"cancelled, a request had no answer": {facts: facts{wants, func(a *acquisition) { a.copiesMayArrive = true }},
			err: errCancelled, want: reenters},
		"cancelled in its place": {facts: facts{wants, func(a *acquisition) { a.place.joined = true }},
			err: errCancelled, want: reenters},
		"notifications have ended": {facts: facts{wants, listening}, want: listens},
		"notifications ended just now": {facts: facts{wants, listening, func(a *acquisition) { a.place.listened = time.Now() }},
			want: pauses},
		"notified":                            {facts: facts{wants, listening, notified}, want: pauses},
		"notifications have ended, no answer": {facts: facts{answered, wants, listening}, err: silence, want: pauses},
	} {
		a := &acquisition{locker: &Locker{caps: driver.Capabilities{Queues: true}}}
		for _, set := range c.facts {
			set(a)
		}
		var reply driver.AcquireReply
		if c.full {
			reply.Outcome = driver.Full
		}
		if got := a.next(reply, c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func listening(a *acquisition) { a.locker.listener = struct{ driver.Listener }{} }

func notified(a *acquisition) { a.place.wakes = make(chan driver.Wake) }

// closedMeanwhile is a driver whose answer fails, after Close and before the contexts of waits have ended.
type closedMeanwhile struct {
	minter
	close func()
}

func (d *closedMeanwhile) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	d.close()
	return driver.AcquireReply{}, errors.New("the wire is broken")
}

func TestAcquire_C_requestFailsAtClose_isClosed(t *testing.T) {
	d := new(closedMeanwhile)
	l := open(t, d, unrenewed)
	d.close = func() { _ = l.Close(context.Background()) }
	a := &acquisition{locker: l, once: true, ctx: t.Context(), op: Operation{Key: "key", TTL: time.Minute}}
	if out := a.askUntilGranted(t.Context()); !errors.Is(out.err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", out.err)
	}
}
