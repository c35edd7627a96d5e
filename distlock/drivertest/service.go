package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Service is a backend under test. A nil function means that the backend has nothing of that kind:
// no connections, no users, no data of other programs. Its tests then do not exist.
type Service struct {
	// New makes a driver for the test or benchmark and closes what belongs to it when that ends. If
	// the driver's Capabilities say AcrossProcesses, all drivers of one Service see the same locks.
	New func(tb testing.TB) driver.Driver
	// Restart stops the backend and starts it again. It may lose its data.
	Restart func()
	// CutConnections ends all connections of drivers. They may connect again. Their clients make
	// each call once, so that calls under way fail.
	CutConnections func()
	// Hang stops the backend until resume is called. Connections stay open and get no answer.
	Hang func() (resume func())
	// DenyRight takes a right from the drivers that Acquire, Release and Ask need, until restore is
	// called.
	DenyRight func() (restore func())
	// PutForeign puts data of another program where the lock of a free name would be. intact
	// reports whether that data is as it was.
	PutForeign func(name driver.Name) (intact func() bool)
	// UsePool takes all connections of the pool of the application, whose client the driver that was
	// made last shares, until free is called.
	UsePool func() (free func())
}

// faultTests returns the tests that the Service has functions for.
func (s Service) faultTests() map[string]func(*testing.T, Service) {
	tests := make(map[string]func(*testing.T, Service))
	if s.Restart != nil {
		tests["L_aRestartIsSurvived"] = testRestart
	}
	if s.CutConnections != nil {
		tests["C_aKindIsTrueWhenConnectionsBreak"] = testCutKinds
		tests["L_aCutConnectionWakesListeners"] = testCutListeners
		tests["N_aCutConnectionEndsNoNotices"] = testCutAsks
	}
	if s.Hang != nil {
		tests["C_hangingBackend_callEndsWithCtx"] = testHang
	}
	if s.DenyRight != nil {
		tests["C_aMissingRightIsRefused"] = testDenied
	}
	if s.PutForeign != nil {
		tests["C_foreignDataIsLeftAlone"] = testForeign
	}
	if s.UsePool != nil {
		tests["N_usedUpPool_delaysNoCall"] = testUsedUpPool
	}
	return tests
}

// recovers acquires a fresh name until that succeeds.
func (s *subject) recovers() {
	s.tb.Helper()
	s.soon(func() error {
		other := newSubject(s.tb, s.Driver)
		_, err := s.Acquire(context.Background(), other.request())
		return err
	})
}

// soon repeats a check until it succeeds.
func (s *subject) soon(check func() error) {
	s.tb.Helper()
	var err error
	for deadline := time.Now().Add(notified); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	s.tb.Fatalf("the driver does not recover: %v", err)
}

// during calls Acquire with fresh names, from several goroutines, while do runs. It returns the
// names whose requests failed.
func (s *subject) during(do func()) map[driver.Name]error {
	var (
		calls  sync.WaitGroup
		mu     sync.Mutex
		failed = make(map[driver.Name]error)
		over   = make(chan struct{})
	)
	for range 8 {
		calls.Go(func() {
			for {
				req := driver.AcquireRequest{Name: freshName(), Owner: randomHex(), TTL: long}
				ctx, cancel := context.WithTimeout(context.Background(), notified)
				_, err := s.Acquire(ctx, req)
				cancel()
				if err != nil {
					mu.Lock()
					failed[req.Name] = err
					mu.Unlock()
				}
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	time.Sleep(10 * time.Millisecond) // so that calls are under way
	do()
	close(over)
	calls.Wait()
	return failed
}

func testRestart(t *testing.T, service Service) {
	s := newSubject(t, service.New(t))
	holder := s.request()
	first := s.granted(holder)
	for _, err := range s.during(service.Restart) {
		for _, lasting := range []error{driver.ErrRefused, driver.ErrForeign, driver.ErrFloor} {
			if errors.Is(err, lasting) {
				t.Errorf("Acquire during a restart: %v", err)
			}
		}
	}
	s.recovers()
	// A backend that loses its data within a block may repeat its tokens.
	time.Sleep(time.Duration(driver.FenceBlock) * time.Microsecond)
	held := s.Extend(context.Background(), []driver.ExtendRequest{{Name: s.name, Owner: holder.Owner, TTL: long}})[0]
	if held.Err != nil {
		t.Fatalf("Extend: %v", held.Err)
	}
	if held.Held {
		s.refused(s.request(), driver.Busy)
		s.release(holder, true)
	}
	if next := s.granted(s.request()); next.Fence <= first.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", next.Fence, first.FenceEnd)
	}
}

// An error that says that nothing was done is believed: no clean-up follows.
func testCutKinds(t *testing.T, service Service) {
	s := newSubject(t, service.New(t))
	holder := s.request()
	s.granted(holder)
	failed := s.during(func() {
		for range 10 {
			service.CutConnections()
			time.Sleep(5 * time.Millisecond)
		}
	})
	if len(failed) == 0 {
		t.Error("no call failed: CutConnections cuts none")
	}
	s.recovers()
	for name, err := range failed {
		if driver.MayHaveEffect(err) {
			continue
		}
		// A node of a quorum may be away for longer than the quorum.
		s.soon(func() error {
			state, looked := s.Inspect(context.Background(), name)
			if looked == nil && state.Held {
				return fmt.Errorf("Acquire: %w, and then Inspect: %+v", err, state)
			}
			return looked
		})
	}
	s.soon(func() error {
		extend := driver.ExtendRequest{Name: s.name, Owner: holder.Owner, TTL: long}
		return s.Extend(context.Background(), []driver.ExtendRequest{extend})[0].Err
	})
	s.extend(holder, long, true)
}

// A backend that hangs keeps no caller whose context ends.
func testHang(t *testing.T, service Service) {
	s := newSubject(t, service.New(t))
	holder := s.request()
	s.granted(holder)
	resume := sync.OnceFunc(service.Hang())
	defer resume()
	for name, call := range map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, s.request()); return err },
		"Inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, s.name); return err },
		"Raise": func(ctx context.Context) error {
			_, err := s.Raise(ctx, driver.RaiseRequest{Name: s.name, Owner: holder.Owner})
			return err
		},
		"Ask": func(ctx context.Context) error {
			asker := asker(s.Driver)
			if asker == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			_, err := asker.Ask(ctx, driver.AskRequest{Name: freshName()})
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{Name: freshName(), Owner: holder.Owner})
			return err
		},
		"Release with a tombstone": func(ctx context.Context) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{Name: freshName(), Owner: holder.Owner, Tombstone: long})
			return err
		},
	} {
		const after = 20 * time.Millisecond
		for range 3 {
			cancelled, cancel := context.WithCancel(context.Background())
			time.AfterFunc(after, cancel)
			start := time.Now()
			if err := call(cancelled); !errors.Is(err, context.Canceled) || time.Since(start) > after+notified/4 {
				t.Errorf("%s, cancelled: %v after %s", name, err, time.Since(start))
			}
			ended, cancel := context.WithTimeout(context.Background(), after)
			start = time.Now()
			if err := call(ended); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > after+notified/4 {
				t.Errorf("%s, with a deadline: %v after %s", name, err, time.Since(start))
			}
			cancel()
		}
	}
	resume()
	s.recovers()
	s.extend(holder, long, true)
}

// A message of that time is lost, so a listener is woken, or its channel is closed.
func testCutListeners(t *testing.T, service Service) {
	d := service.New(t)
	if _, ok := driver.As[driver.Listener](d); !ok {
		return
	}
	s := newSubject(t, d)
	wakes, _ := s.listen(s.request())
	service.CutConnections()
	select {
	case wake, open := <-wakes:
		if open && wake.Seq != 0 {
			t.Errorf("a listener of a cut connection received %+v, want the zero Wake", wake)
		}
	case <-time.After(notified):
		t.Error("a listener of a cut connection was not woken")
	}
}

func testDenied(t *testing.T, service Service) {
	s := newSubject(t, service.New(t))
	holder := s.request()
	s.granted(holder)
	other := newSubject(t, s.Driver)
	denied := other.request()
	restore := service.DenyRight()
	_, acquired := s.Acquire(context.Background(), denied)
	_, released := s.Release(context.Background(), driver.ReleaseRequest{Name: holder.Name, Owner: holder.Owner})
	errs := map[string]error{"Acquire": acquired, "Release": released}
	if asker := asker(s.Driver); asker != nil {
		_, errs["Ask"] = asker.Ask(context.Background(), driver.AskRequest{Name: holder.Name})
	}
	restore()
	for call, err := range errs {
		if !errors.Is(err, driver.ErrRights) || !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) {
			t.Errorf("%s without a right: %v, want ErrRights", call, err)
		}
	}
	if other.state().Held {
		t.Error("a refused Acquire has left a grant")
	}
	s.extend(holder, long, true)
	s.release(holder, true)
	other.granted(denied)
}

func testForeign(t *testing.T, service Service) {
	s := newSubject(t, service.New(t))
	req := s.request()
	intact := service.PutForeign(s.name)
	_, acquired := s.Acquire(context.Background(), req)
	_, inspected := s.Inspect(context.Background(), s.name)
	errs := map[string]error{"Acquire": acquired, "Inspect": inspected}
	if asker := asker(s.Driver); asker != nil {
		_, errs["Ask"] = asker.Ask(context.Background(), driver.AskRequest{Name: s.name})
	}
	for call, err := range errs {
		if !errors.Is(err, driver.ErrForeign) || driver.MayHaveEffect(err) {
			t.Errorf("%s of a name with foreign data: %v, want ErrForeign", call, err)
		}
	}
	raise := driver.RaiseRequest{Name: s.name, Owner: req.Owner, Floor: 1}
	if reply, err := s.Raise(context.Background(), raise); reply.Held {
		t.Errorf("Raise: %+v, %v", reply, err)
	}
	extend := driver.ExtendRequest{Name: s.name, Owner: req.Owner, TTL: short}
	if reply := s.Extend(context.Background(), []driver.ExtendRequest{extend})[0]; reply.Held {
		t.Errorf("Extend: %+v", reply)
	}
	release := driver.ReleaseRequest{Name: s.name, Owner: req.Owner, Tombstone: long}
	if reply, err := s.Release(context.Background(), release); reply.Released {
		t.Errorf("Release: %+v, %v", reply, err)
	}
	if !intact() {
		t.Error("the foreign data has changed")
	}
}

// A driver has connections beside those of the application.
func testUsedUpPool(t *testing.T, service Service) {
	s := newSubject(t, service.New(t))
	holder := s.request()
	s.granted(holder) // to connect
	free := sync.OnceFunc(service.UsePool())
	defer free()
	ctx, cancel := context.WithTimeout(context.Background(), notified/2)
	defer cancel()
	other := newSubject(t, s.Driver)
	grant, acquired := s.Acquire(ctx, other.request())
	_, inspected := s.Inspect(ctx, s.name)
	var listened error
	if listener, ok := driver.As[driver.Listener](s.Driver); ok {
		_, stop, err := listener.Listen(ctx, s.name, holder.Owner)
		if listened = err; err == nil {
			stop()
		}
	}
	extend := driver.ExtendRequest{Name: s.name, Owner: holder.Owner, TTL: long}
	batch := s.Extend(ctx, []driver.ExtendRequest{extend, extend, extend})
	over, released := s.Release(ctx, driver.ReleaseRequest{Name: s.name, Owner: holder.Owner})
	if err := errors.Join(acquired, inspected, listened, batch[0].Err, batch[2].Err, released); err != nil {
		t.Errorf("calls beside a pool that is used up: %v", err)
	}
	if grant.Outcome != driver.Granted || !batch[2].Held || !over.Released {
		t.Errorf("Acquire: %+v, Extend: %+v, Release: %+v", grant, batch, over)
	}
}
