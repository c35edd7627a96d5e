package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/election"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

const (
	name = "scheduler"
	ttl  = 3 * time.Second
)

var errDown = errors.New("the service is down")

// instance is a Locker with faults of its own.
type instance struct {
	*distlock.Locker
	faults *drivertest.Faults
}

// open makes an instance whose Locker logs to a Handler, if there is one.
func open(t *testing.T, d driver.Driver, holder string, log ...slog.Handler) instance {
	t.Helper()
	faults, logger := drivertest.NewFaults(d), slog.New(slog.DiscardHandler)
	if len(log) > 0 {
		logger = slog.New(log[0])
	}
	l, err := distlock.New(faults, &distlock.Options{TTL: ttl, Holder: holder, Logger: logger})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close(context.Background())) })
	return instance{l, faults}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func cutOff(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errDown} }

// term is one run of lead.
type term struct {
	fence int64
	ctx   context.Context
	end   chan error // what lead is to return
}

// campaign runs an instance whose lead returns what its term is sent, however its context ends.
func campaign(ctx context.Context, i instance, opts ...distlock.CallOption) (terms <-chan term, result <-chan error) {
	began, ended := make(chan term), make(chan error, 1)
	go func() {
		ended <- election.Run(ctx, i.Locker, name, func(ctx context.Context) error {
			lease, _ := i.FromContext(ctx, name)
			t := term{lease.Fence(), ctx, make(chan error)}
			began <- t
			return <-t.end
		}, opts...)
	}()
	return began, ended
}

func TestRun_L_resign_nextLeadsWithin1s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, errWork := memlock.NewDriver(), errors.New("the work failed")
		first, firstEnds := campaign(t.Context(), open(t, d, "one"))
		old := <-first
		second, secondEnds := campaign(t.Context(), open(t, d, "two"), distlock.WithWait(time.Millisecond))
		time.Sleep(time.Hour) // the wait has no limit
		at := time.Now()
		old.end <- errWork
		next := <-second
		// An instance that asks again after a pause may be early by chance.
		if took := time.Since(at); took > 10*time.Millisecond || next.fence <= old.fence {
			t.Errorf("the next leader began after %s with token %d, after %d", took, next.fence, old.fence)
		}
		wantErr(t, <-firstEnds, errWork)
		next.end <- nil
		must(t, <-secondEnds)
	})
}

// The older lead returns late, and drops its result.
func TestRun_N_cutOff_contextEndsBeforeNextLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		one := open(t, d, "one")
		first, firstEnds := campaign(t.Context(), one)
		old := <-first
		second, secondEnds := campaign(t.Context(), open(t, d, "two"))
		synctest.Wait()
		one.faults.Inject(cutOff)
		at := time.Now()
		next := <-second
		if took := time.Since(at); took > ttl+time.Second {
			t.Errorf("the next leader began after %s", took)
		}
		if cause := context.Cause(old.ctx); !errors.Is(cause, distlock.ErrLost) {
			t.Errorf("when the next leader began, the cause of the older context was %v", cause)
		}
		old.end <- nil
		time.Sleep(time.Minute) // the campaign outlives the outage
		one.faults.Inject(nil)
		time.Sleep(10 * time.Second)
		next.end <- nil
		again := <-first
		if again.fence <= next.fence {
			t.Errorf("token %d after %d", again.fence, next.fence)
		}
		again.end <- nil
		must(t, errors.Join(<-firstEnds, <-secondEnds))
	})
}

func TestRun_shutdown_resignsAfterLeadReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		one := open(t, d, "one")
		ctx, cancel := context.WithCancel(t.Context())
		first, ends := campaign(ctx, one)
		term := <-first
		cancel()
		time.Sleep(10 * ttl)
		info, err := election.Leader(t.Context(), one.Locker, name)
		if err != nil || !info.Held || info.Holder != "one" || info.Age < 10*ttl || term.ctx.Err() == nil {
			t.Errorf("before lead returns: %+v, %v, %v", info, err, term.ctx.Err())
		}
		term.end <- term.ctx.Err()
		wantErr(t, <-ends, context.Canceled)
		if info, err := election.Leader(t.Context(), one.Locker, name); err != nil || info.Held {
			t.Errorf("after Run: %+v, %v", info, err)
		}
	})
}

func TestRun_ctxEndsInCampaign_returnsItsError(t *testing.T) {
	for state, fault := range map[string]func(drivertest.Call) drivertest.Fault{"queue": nil, "pause": cutOff} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.NewDriver()
				lease, err := open(t, d, "other").Acquire(t.Context(), name)
				must(t, err)
				defer lease.Release(context.Background())
				one := open(t, d, "one")
				one.faults.Inject(fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				at := time.Now()
				_, ends := campaign(ctx, one)
				if err := <-ends; time.Since(at) != time.Minute || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("Run: %v after %s", err, time.Since(at))
				}
				if calls := one.faults.Calls(drivertest.Acquire); state == "pause" && (calls < 12 || calls > 40) {
					t.Errorf("%d attempts in a minute", calls)
				}
			})
		})
	}
}

// canceler ends a context at the End of an operation.
type canceler struct{ cancel context.CancelFunc }

func (canceler) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (c canceler) End(context.Context, *distlock.Operation)                       { c.cancel() }

// The lock service fails, and ctx ends before Run looks at it.
func TestRun_ctxEndsAfterFailure_returnsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		faults := drivertest.NewFaults(memlock.NewDriver())
		faults.Inject(cutOff)
		locker, err := distlock.New(faults, &distlock.Options{Observer: canceler{cancel}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background())
		err = election.Run(ctx, locker, name, func(context.Context) error { return nil })
		if !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) ||
			!strings.Contains(err.Error(), errDown.Error()) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestRun_definiteFailure_returns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := open(t, memlock.NewDriver(), "one")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		runs := 0
		lead := func(context.Context) error { runs++; return distlock.ErrUnavailable }
		if err := election.Run(ctx, one.Locker, name, lead); err != distlock.ErrUnavailable || runs != 1 {
			t.Errorf("an error of lead: %v after %d runs", err, runs)
		}
		wantErr(t, election.Run(ctx, one.Locker, "", lead), distlock.ErrInvalidKey)
		wantErr(t, election.Run(ctx, one.Locker, name, lead, distlock.WithTTL(1)), distlock.ErrInvalidOption)
		err := one.Do(ctx, name, func(ctx context.Context) error {
			return election.Run(ctx, one.Locker, name, lead)
		})
		if busy := (*distlock.BusyError)(nil); !errors.As(err, &busy) || !busy.Self {
			t.Errorf("inside the lease: %v", err)
		}
		must(t, one.Close(t.Context()))
		wantErr(t, election.Run(ctx, one.Locker, name, lead), distlock.ErrClosed)
	})
}

// Close does not wait for lead.
func TestRun_closedWhileLeading_nextLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		one := open(t, d, "one")
		first, firstEnds := campaign(t.Context(), one)
		old := <-first
		second, secondEnds := campaign(t.Context(), open(t, d, "two"))
		synctest.Wait()
		at := time.Now()
		must(t, one.Close(t.Context()))
		next := <-second
		took := time.Since(at)
		synctest.Wait() // the context ends in a goroutine of its own
		if took > time.Second || old.ctx.Err() == nil {
			t.Errorf("the next leader began after %s, the context of the older one: %v", took, old.ctx.Err())
		}
		old.end <- nil
		wantErr(t, <-firstEnds, distlock.ErrClosed)
		next.end <- nil
		must(t, <-secondEnds)
	})
}

// logged is a log line of Run.
type logged struct {
	Level, Msg, Error string
	Led               bool
	Pause             time.Duration `json:"pause_ms"`
	LockKey           string        `json:"lock_key"`
}

// The pauses grow in an outage. After a campaign of a minute, they begin anew.
func TestRun_calmMinute_pausesBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		var log bytes.Buffer
		one := open(t, d, "one", slog.NewJSONHandler(&log, nil))
		lines := func() (all []logged) {
			synctest.Wait() // the Locker logs in a goroutine
			for decoder := json.NewDecoder(&log); ; {
				var line logged
				if decoder.Decode(&line) != nil {
					return all
				}
				line.Pause *= time.Millisecond
				if strings.HasPrefix(line.Msg, "election: ") {
					all = append(all, line)
				}
			}
		}
		one.faults.Inject(cutOff)
		terms, ends := campaign(t.Context(), one)
		time.Sleep(time.Minute)
		one.faults.Inject(nil)
		first := <-terms
		all := lines()
		if len(all) < 5 {
			t.Fatalf("%d lines in a minute", len(all))
		}
		begin, last := all[0], all[len(all)-1]
		if begin.Pause > 100*time.Millisecond || last.Pause < 2500*time.Millisecond {
			t.Errorf("the first pause is %s, the last one %s", begin.Pause, last.Pause)
		}
		if begin.Level != "WARN" || begin.Led || !strings.Contains(begin.Error, errDown.Error()) || begin.LockKey == "" || begin.LockKey == name {
			t.Errorf("the first line is %+v", begin)
		}

		time.Sleep(time.Minute) // the calm
		one.faults.Inject(cutOff)
		<-first.ctx.Done()
		one.faults.Inject(nil)
		first.end <- nil
		second := <-terms
		if all = lines(); len(all) != 1 || all[0].Pause > 100*time.Millisecond || !all[0].Led {
			t.Errorf("after the calm: %+v", all)
		}
		second.end <- nil
		must(t, <-ends)
	})
}

// An Interrupt ends a term, and not the campaign.
func TestRun_interrupted_campaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		one, two := open(t, d, "one"), open(t, d, "two")
		first, firstEnds := campaign(t.Context(), one)
		old := <-first
		second, secondEnds := campaign(t.Context(), two)
		synctest.Wait()
		if held, err := two.Interrupt(t.Context(), name); !held || err != nil {
			t.Errorf("Interrupt: %t, %v", held, err)
		}
		<-old.ctx.Done()
		old.end <- context.Cause(old.ctx)
		(<-second).end <- nil
		(<-first).end <- nil
		must(t, errors.Join(<-firstEnds, <-secondEnds))
	})
}
