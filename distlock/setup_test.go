package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key = "conversation-1"
	ttl = 3 * time.Second
)

var (
	errBroken     = errors.New("the wire is broken")
	errWork       = errors.New("the work failed")
	errSilence    = errors.New("connection refused")
	errTurnedAway = fmt.Errorf("failing over: %w", driver.ErrTemporary)
	errForbidden  = fmt.Errorf("no such right: %w", driver.ErrRefused)
)

// option sets an option of a Locker.
type option = func(*distlock.Options)

func withTTL(d time.Duration) option     { return func(o *distlock.Options) { o.TTL = d } }
func withWait(d time.Duration) option    { return func(o *distlock.Options) { o.Wait = d } }
func withMaxHold(d time.Duration) option { return func(o *distlock.Options) { o.MaxHold = d } }
func renewEvery(d time.Duration) option  { return func(o *distlock.Options) { o.RenewEvery = d } }
func withHolder(holder string) option    { return func(o *distlock.Options) { o.Holder = holder } }
func withNamespace(name string) option   { return func(o *distlock.Options) { o.Namespace = name } }
func seenBy(observer distlock.Observer) option {
	return func(o *distlock.Options) { o.Observer = observer }
}
func logTo(logger *slog.Logger) option { return func(o *distlock.Options) { o.Logger = logger } }

var (
	unrenewed = renewEvery(-1) // a lease ends with its TTL
	patient   = withWait(-1)   // a wait ends with its ctx
)

// options returns those of a Locker that is silent, with the test's TTL.
func options(with ...option) *distlock.Options {
	opts := &distlock.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)}
	for _, set := range with {
		set(opts)
	}
	return opts
}

// open makes a Locker over a driver. The end of the test closes it.
func open(t *testing.T, d driver.Driver, with ...option) *distlock.Locker {
	t.Helper()
	l, err := distlock.New(d, options(with...))
	must(t, err)
	t.Cleanup(func() { mustClose(t, l) })
	return l
}

// service is an in-process lock service. Script shows and changes what reaches it, Faults spoils the calls
// of one client.
type service struct {
	*drivertest.Faults
	*distlock.Script
}

func newService() *service {
	script := &distlock.Script{Driver: memlock.NewDriver()}
	return &service{Faults: drivertest.NewFaults(script), Script: script}
}

// twin is a second client of the service, with faults of its own.
func (s *service) twin() *service {
	return &service{Faults: drivertest.NewFaults(s.Script), Script: s.Script}
}

func (s *service) locker(t *testing.T, with ...option) *distlock.Locker {
	t.Helper()
	return open(t, s.Faults, with...)
}

// steal ends the last grant behind the back of its holder.
func (s *service) steal(t *testing.T) {
	t.Helper()
	if reply := s.frees(t, s.Granted().Owner); !reply.Released {
		t.Fatal("there was no lock to steal")
	}
}

// frees releases the last grant for an owner.
func (s *service) frees(t *testing.T, owner string) driver.ReleaseReply {
	t.Helper()
	request := driver.ReleaseRequest{Name: s.Granted().Name, Owner: owner}
	reply, err := s.Driver().Release(context.Background(), request)
	if err != nil || owner == "" {
		t.Errorf("the release for the owner %q: %v", owner, err)
	}
	return reply
}

// Driver is the service itself.
func (s *service) Driver() driver.Driver { return s.Script.Driver }

func (s *service) state(t *testing.T) driver.State {
	t.Helper()
	state, err := s.Driver().Inspect(context.Background(), driver.Name{Namespace: "distlock", Key: key})
	must(t, err)
	return state
}

// wantFree fails the test if the lock is held.
func (s *service) wantFree(t *testing.T) {
	t.Helper()
	if state := s.state(t); state.Held {
		t.Errorf("the lock is held: %+v", state)
	}
}

// mute is a driver without notifications and without a queue.
type mute struct{ driver.Driver }

func (m mute) Capabilities() driver.Capabilities {
	c := m.Driver.Capabilities()
	c.Queues = false
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err matches want, and nothing else.
func wantErr(t *testing.T, err, want error, not ...error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
	for _, not := range not {
		if errors.Is(err, not) {
			t.Errorf("the error is %v, which matches %v", err, not)
		}
	}
}

// wantAll fails the test unless err matches each of want.
func wantAll(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, want := range want {
		wantErr(t, err, want)
	}
}

func wantCause(t *testing.T, ctx context.Context, want error) {
	t.Helper()
	if cause := context.Cause(ctx); cause != want {
		t.Errorf("the cause is %v, want %v", cause, want)
	}
}

// wantBusy returns the BusyError of a call that found the lock held.
func wantBusy(t *testing.T, err error) *distlock.BusyError {
	t.Helper()
	var busy *distlock.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, distlock.ErrNotAcquired) || errors.Is(err, distlock.ErrUnavailable) ||
		strings.Contains(err.Error(), "%!") {
		t.Fatalf("the error is %v, want a BusyError", err)
	}
	return busy
}

// wantTook fails the test unless that much time has passed since start.
func wantTook(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(start); took != want {
		t.Errorf("it took %s, want %s", took, want)
	}
}

// wantCalls fails the test unless op was called so often.
func (s *service) wantCalls(t *testing.T, op drivertest.Op, want int) {
	t.Helper()
	if n := s.Calls(op); n != want {
		t.Errorf("%d calls of %s, want %d", n, op, want)
	}
}

func wantList(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// second is the error of a call that returns something with it.
func second[T any](_ T, err error) error { return err }

func mustClose(t *testing.T, l *distlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	wantErr(t, l.Close(ctx), nil)
}

func mustAcquire(t *testing.T, l *distlock.Locker, with ...distlock.CallOption) *distlock.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key, with...)
	must(t, err)
	return lease
}

func mustRelease(t *testing.T, lease *distlock.Lease) {
	t.Helper()
	must(t, lease.Release(context.Background()))
}

// ctxFor returns a context that ends after d.
func ctxFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	t.Cleanup(cancel)
	return ctx
}

// leftCtx returns the context of a caller that has left.
func leftCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// async makes a call, and returns where its error will come.
func async(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

// inService runs the test on fake time, with a service of its own.
func inService(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newService()) })
}

// each runs the test in a service for each case.
func each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, s *service, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) { test(t, s, c) })
		})
	}
}

func ranT(t *testing.T) func(context.Context) error {
	return func(context.Context) error { t.Error("the work ran"); return nil }
}

// nothing is work that is done.
func nothing(context.Context) error { return nil }

// on is a fault of all calls of op.
func on(op drivertest.Op, fault drivertest.Fault) func(drivertest.Call) drivertest.Fault {
	return from(op, 0, math.MaxInt, fault)
}

// nth is a fault of one call of op. The first one has the number 0.
func nth(op drivertest.Op, n int, fault drivertest.Fault) func(drivertest.Call) drivertest.Fault {
	return from(op, n, 1, fault)
}

// from is a fault of some calls of op, from the given one on.
func from(op drivertest.Op, first, calls int, fault drivertest.Fault) func(drivertest.Call) drivertest.Fault {
	return func(c drivertest.Call) drivertest.Fault {
		if c.Op == op && c.N >= first && c.N-first < calls {
			return fault
		}
		return drivertest.Fault{}
	}
}

// always makes the calls of op fail before they reach the service.
func always(op drivertest.Op, err error) func(drivertest.Call) drivertest.Fault {
	return on(op, drivertest.Fault{Before: err})
}

// after makes the calls of op lose their answers.
func after(op drivertest.Op, err error) func(drivertest.Call) drivertest.Fault {
	return on(op, drivertest.Fault{After: err})
}

// all is a fault of all calls.
func all(fault drivertest.Fault) func(drivertest.Call) drivertest.Fault {
	return func(drivertest.Call) drivertest.Fault { return fault }
}

func cutOff(err error) func(drivertest.Call) drivertest.Fault {
	return all(drivertest.Fault{Before: err})
}

// slow delays the answers of all calls.
func slow(until <-chan struct{}) func(drivertest.Call) drivertest.Fault {
	return all(drivertest.Fault{HoldAfter: until})
}

// in is closed after d.
func in(d time.Duration) <-chan struct{} {
	passed := make(chan struct{})
	time.AfterFunc(d, func() { close(passed) })
	return passed
}
