package sessionstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// failing is a driver whose calls fail, or do not return before their ctx ends.
type failing struct {
	scripted
	err    error
	sooner bool // the connection notices the deadline of ctx
}

func (d *failing) answer(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && d.sooner {
		time.Sleep(time.Until(at))
		return errors.New("i/o timeout")
	}
	if d.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.err
}

// over makes a memory over the driver.
func (d *failing) over(t *testing.T, lock *distlock.Options) (*lockedmemory.LockedMemory[string, string],
	*sessionstore.Store[string, string], *distlock.Locker) {
	d.write = func(ctx context.Context, _ storedriver.Write, _ effect) (storedriver.Verdict, error) {
		return storedriver.Verdict{}, d.answer(ctx)
	}
	d.read = func(ctx context.Context, _ storedriver.Read) (storedriver.Page, error) {
		return storedriver.Page{}, d.answer(ctx)
	}
	return over(t, d, &d.Driver, lock)
}

func (d *failing) Sessions(ctx context.Context, _ string) ([]string, string, error) {
	return nil, "", d.answer(ctx)
}

func (d *failing) Put(ctx context.Context, _ storedriver.Put) (storedriver.Verdict, error) {
	return storedriver.Verdict{}, d.answer(ctx)
}

func (d *failing) Pending(ctx context.Context, _ storedriver.Access) (storedriver.Verdict, []storedriver.Item, error) {
	return storedriver.Verdict{}, nil, d.answer(ctx)
}

func (d *failing) Inboxes(ctx context.Context, _ string) ([]string, string, error) {
	return nil, "", d.answer(ctx)
}

func (d *failing) Ping(ctx context.Context) ([]string, error) { return nil, d.answer(ctx) }

func TestErrors_C_kindOfFailure(t *testing.T) {
	plain := errors.New("connection reset")
	replayed := func(err error) error { return fmt.Errorf("%w: %w", driver.ErrReplayed, err) }
	unavailable, refused, unknown := distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown
	for name, c := range map[string]struct {
		err         error
		write, read error
	}{
		"no answer":               {plain, unknown, unavailable},
		"a timeout of the client": {fmt.Errorf("read: %w", context.DeadlineExceeded), unknown, unavailable},
		"turned away":             {fmt.Errorf("%w: loading", driver.ErrTemporary), unavailable, unavailable},
		"not sent":                {fmt.Errorf("%w: refused", driver.ErrNotDone), unavailable, unavailable},
		"a timeout while dialling": {fmt.Errorf("%w: %w", driver.ErrNotDone, context.DeadlineExceeded),
			unavailable, unavailable},
		"no memory":                {fmt.Errorf("%w: OOM", driver.ErrRefused), refused, refused},
		"no right":                 {fmt.Errorf("%w: NOPERM", driver.ErrRights), refused, refused},
		"data of another program":  {fmt.Errorf("%w: WRONGTYPE", driver.ErrForeign), refused, refused},
		"lost twice":               {replayed(plain), unknown, unavailable},
		"turned away after a loss": {replayed(driver.ErrTemporary), unknown, unavailable},
		"refused after a loss":     {replayed(driver.ErrRefused), unknown, refused},
	} {
		t.Run(name, func(t *testing.T) {
			d := &failing{err: c.err}
			eachCall(t, d, func(t *testing.T, call string, write bool, do func(context.Context) error) {
				want := c.read
				if write {
					want = c.write
				}
				isExactly(t, call, do(t.Context()), want)
			})
		})
	}
}

// A ctx that ends is the reason of its own error, and of nothing else. A write that was sent has an
// unknown outcome.
func TestErrors_C_endedContext(t *testing.T) {
	mine := fmt.Errorf("mine: %w", distlock.ErrLost) // the loss of another lease
	for name, c := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want error
		sent bool
	}{
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(mine) })
			return ctx, func() { cancel(nil) }
		}, context.Canceled, true},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded, true},
		"deadline in the past": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, -time.Second)
		}, context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &failing{}
			eachCall(t, d, func(t *testing.T, call string, write bool, do func(context.Context) error) {
				ctx, end := c.end(t.Context())
				defer end()
				want := []error{c.want}
				if write && c.sent {
					want = append(want, distlock.ErrOutcomeUnknown)
				}
				isExactly(t, call, do(ctx), want...)
			})
		})
	}
}

// slow is a context that ends some time after its deadline, as a busy machine has it.
type slow struct {
	context.Context
	at time.Time
}

func (s slow) Deadline() (time.Time, bool) { return s.at, true }

func TestErrors_C_connectionTimesOutFirst(t *testing.T) {
	eachCall(t, &failing{sooner: true}, func(t *testing.T, call string, write bool, do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		want := []error{context.DeadlineExceeded}
		if write {
			want = append(want, distlock.ErrOutcomeUnknown)
		}
		isExactly(t, call, do(slow{ctx, time.Now().Add(time.Second)}), want...)
	})
}

// isExactly tests which of the errors that say what became of a call the given one matches.
func isExactly(t *testing.T, call string, err error, want ...error) {
	t.Helper()
	for _, each := range []error{
		distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown, distlock.ErrLost, context.Canceled,
		context.DeadlineExceeded,
	} {
		if errors.Is(err, each) != slices.Contains(want, each) {
			t.Errorf("%s: %v; want %v", call, err, want)
			return
		}
	}
}

// eachCall gives test each call of a memory over d, one that writes or not, in a bubble. The lease
// that a call works under belongs to the context of the call.
func eachCall(t *testing.T, d *failing, test func(t *testing.T, call string, write bool,
	do func(context.Context) error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory, store, _ := d.over(t, nil)
		names := func(of func(context.Context) iter.Seq2[string, error]) func(context.Context) error {
			return func(ctx context.Context) (err error) {
				for _, err = range of(ctx) {
				}
				return err
			}
		}
		for _, c := range []struct {
			name  string
			write bool
			do    func(context.Context) error
		}{
			{"Save", true, func(ctx context.Context) error { return memory.Save(ctx, "q", "a") }},
			{"SaveOnce", true, func(ctx context.Context) error { return memory.SaveOnce(ctx, "id", "q", "a") }},
			{"Clear", true, memory.Clear},
			{"Load", false, func(ctx context.Context) error { return second(memory.Load(ctx, "")) }},
			{"Search", false, func(ctx context.Context) error { return second(memory.Search(ctx, "q", 1)) }},
			{"Sessions", false, names(store.Sessions)},
			{"Put", true, func(ctx context.Context) error { return memory.Put(ctx, "id", "q") }},
			{"Pending", false, func(ctx context.Context) error { return second(memory.Pending(ctx)) }},
			{"Inboxes", false, names(store.Inboxes)},
			{"Ping", false, func(ctx context.Context) error { return second(store.Ping(ctx)) }},
		} {
			synctest.Wait() // for calls whose callers have left
			test(t, c.name, c.write, c.do)
			must(t, memory.Turn(t.Context(), func(turn context.Context) error {
				test(t, c.name+" in a turn", c.write, func(ctx context.Context) error {
					return c.do(inTurn{ctx, turn})
				})
				return nil
			}))
		}
	})
}

// inTurn is a context with the values of a turn.
type inTurn struct {
	context.Context
	turn context.Context
}

func (c inTurn) Value(key any) any { return cmp.Or(c.Context.Value(key), c.turn.Value(key)) }

// A call whose lease is lost before the answer fails with ErrLost. A Save has an unknown outcome, too.
func TestLoad_N_lostLease(t *testing.T) {
	for call, want := range map[string][]error{
		"Load": {distlock.ErrLost, context.Canceled}, "Save": {distlock.ErrLost, distlock.ErrOutcomeUnknown, context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory, _, _ := (&failing{}).over(t, &distlock.Options{MaxHold: time.Second, Logger: slog.New(slog.DiscardHandler)})
			_ = memory.Turn(t.Context(), func(ctx context.Context) error {
				var err error
				if call == "Load" {
					_, err = memory.Load(ctx, "")
				} else {
					err = memory.Save(ctx, "q", "a")
				}
				isExactly(t, call, err, want...)
				return nil
			})
		})
	}
}
