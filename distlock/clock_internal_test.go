package distlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// suspendFor makes the clocks look as if the machine had been suspended.
func suspendFor(t *testing.T, d time.Duration) {
	t.Helper()
	simulate(t, d, 0)
}

// wallRunsAhead makes the wall clock run ahead where the time spent suspended cannot be read.
func wallRunsAhead(t *testing.T, d time.Duration) {
	t.Helper()
	simulate(t, 0, d)
}

// simulate changes the clocks while no timer reads them.
func simulate(t *testing.T, asleep, ahead time.Duration) {
	t.Helper()
	synctest.Wait()
	restore := trust.Simulate(asleep, ahead)
	t.Cleanup(func() {
		synctest.Wait()
		restore()
	})
}

func TestLease_N_suspendLongerThanTTL_isLost(t *testing.T) {
	for name, guarded := range map[string]func(*testing.T, *Lease) error{
		"Err":     func(_ *testing.T, le *Lease) error { return le.Err() },
		"Guard":   func(t *testing.T, le *Lease) error { return le.Guard(t.Context(), ran(t)) },
		"Extend":  func(t *testing.T, le *Lease) error { return le.Extend(t.Context(), time.Second) },
		"Release": func(t *testing.T, le *Lease) error { return le.Release(t.Context()) },
		"Release beside a step": func(t *testing.T, le *Lease) error {
			le.guard <- struct{}{}
			defer func(start time.Time) {
				if took := time.Since(start); took > 0 {
					t.Errorf("Release took %s", took)
				}
			}(time.Now())
			return le.Release(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, granter{}, Options{})
				lease := take(t, l)
				suspendFor(t, 31*time.Second)
				if err := guarded(t, lease); !errors.Is(err, ErrLost) {
					t.Errorf("%v, want ErrLost", err)
				}
				if context.Cause(lease.Context()) != ErrLost {
					t.Errorf("cause %v", context.Cause(lease.Context()))
				}
			})
		})
	}
}

// The grant was under way while the machine was suspended: the time left is unknown.
func TestAcquire_N_suspendBeforeTheAnswer_undone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &suspending{suspend: func() { suspendFor(t, 31*time.Second) }}
		l := open(t, d, Options{})
		if lease, err := l.Acquire(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, %v, want ErrUnavailable", lease, err)
		}
		synctest.Wait()
		if !d.tombstone.Load() {
			t.Error("the grant was not released")
		}
	})
}

type suspending struct {
	granter
	suspend   func()
	tombstone atomic.Bool
}

func (d *suspending) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	d.suspend()
	return d.granter.Acquire(ctx, req)
}

func (d *suspending) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	d.tombstone.Store(req.Tombstone > 0)
	return d.granter.Release(ctx, req)
}

// A question about a lease that was extended, or cannot be any more, is answered and changes no TTL.
func TestCheck_extendedOrFrozen_changesNoTTL(t *testing.T) {
	for name, frozen := range map[string]bool{"extended": false, "with its end settled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &asked{held: true}
				l := open(t, d, Options{RenewEvery: -1})
				lease := take(t, l)
				if err := lease.Extend(t.Context(), time.Hour); err != nil {
					t.Fatal(err)
				}
				if frozen {
					lease.grant.trust.Freeze()
				}
				wallRunsAhead(t, 10*time.Minute)
				if err := lease.check(t.Context()); err != nil || d.exact {
					t.Errorf("%v; exact: %t", err, d.exact)
				}
			})
		})
	}
}

// The wall clock runs ahead during the work: the release shows that the lease was held, also if its
// caller has left.
func TestDo_suspectAtItsEnd_asksTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, &asked{held: true}, Options{RenewEvery: -1})
		work := func(context.Context) error { wallRunsAhead(t, time.Hour); return nil }
		if err := l.Do(t.Context(), "k", work); err != nil {
			t.Errorf("Do: %v", err)
		}
		lease := take(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		work = func(context.Context) error { wallRunsAhead(t, 2*time.Hour); cancel(); return nil }
		if err := lease.Guard(ctx, work); err != nil {
			t.Errorf("Guard: %v", err)
		}
	})
}

// Without an answer about the lease, the error is that of the work alone, which has run.
func TestDo_C_suspectWithoutAnswer_workHasRun(t *testing.T) {
	for name, run := range map[string]func(*testing.T, *Locker, func(context.Context) error) error{
		"Guard": func(t *testing.T, l *Locker, work func(context.Context) error) error {
			return take(t, l).Guard(t.Context(), work)
		},
		"Do inside Do": func(t *testing.T, l *Locker, work func(context.Context) error) error {
			return l.Do(take(t, l).Context(), "k", work)
		},
		"Do": func(t *testing.T, l *Locker, work func(context.Context) error) error {
			return l.Do(t.Context(), "k", work)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &asked{held: true}
				work := func(context.Context) error { d.silent = true; wallRunsAhead(t, time.Hour); return nil }
				if err := run(t, open(t, d, Options{RenewEvery: -1}), work); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A loss that only the backend knows of is reported.
func TestDo_N_suspectAndLost_isReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &asked{held: true}
		lease := take(t, open(t, d, Options{RenewEvery: -1}))
		work := func(context.Context) error { d.held = false; wallRunsAhead(t, time.Hour); return nil }
		if err := lease.Guard(t.Context(), work); !errors.Is(err, ErrLost) {
			t.Errorf("Guard: %v", err)
		}
	})
}

// A question during a last write finds no lock, which is no loss. An answer "held" begins no renewal.
func TestCheck_N_duringALastWrite_noLoss(t *testing.T) {
	for name, held := range map[string]bool{"released": false, "not released": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := take(t, open(t, &asked{held: held}, Options{}))
				lease.releaseWith(func(string) (driver.ReleaseReply, error) {
					wallRunsAhead(t, time.Hour)
					if err := lease.check(t.Context()); held != (err == nil) || errors.Is(err, ErrLost) {
						t.Errorf("check: %v", err)
					}
					if lease.grant.planned {
						t.Error("a renewal is planned")
					}
					return driver.ReleaseReply{Released: true}, nil
				})
				give(t, lease)
			})
		})
	}
}

// A lease that may have been lost is not handed off within the process: the service, which knows, releases
// the lock.
func TestHandoff_N_suspectLease_isReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &minter{}
		l := open(t, d, Options{RenewEvery: -1})
		for _, ran := range []time.Duration{0, time.Hour} {
			d.releases = 0
			holder, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			next := make(chan *Lease)
			go func() {
				lease, err := l.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				next <- lease
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
			wallRunsAhead(t, ran)
			if err := holder.Release(t.Context()); err != nil {
				t.Error(err)
			}
			lease := <-next
			if suspect := ran > 0; (d.releases == 1) != suspect {
				t.Errorf("the wall clock ran ahead by %s: %d releases", ran, d.releases)
			}
			give(t, lease)
		}
	})
}

// Where the time spent suspended cannot be read, the wall clock is a reason to ask, not to believe.
func TestLease_N_wallClockRanAhead_asksTheBackend(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration
		held  bool // by the service
		asks  int
		want  error
	}{
		"a suspend that the lock survived": {10 * time.Minute, true, 1, nil},
		"a suspend that it did not":        {10 * time.Minute, false, 1, ErrLost},
		"a small correction":               {100 * time.Millisecond, false, 0, nil},
		"half the margin and more":         {126 * time.Millisecond, false, 1, ErrLost},
		"a step back":                      {-time.Hour, false, 0, nil},
	} {
		for call, guarded := range map[string]func(*Locker, *Lease) error{
			"Check": func(_ *Locker, le *Lease) error { return le.check(context.Background()) },
			"Guard": func(_ *Locker, le *Lease) error {
				return le.Guard(context.Background(), func(context.Context) error { return nil })
			},
			"Do": func(l *Locker, le *Lease) error {
				return l.Do(le.Context(), "k", func(context.Context) error { return nil })
			},
			"Extend": func(_ *Locker, le *Lease) error { return le.Extend(context.Background(), 30*time.Second) },
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := &asked{held: c.held || c.asks == 0}
					l := open(t, d, Options{RenewEvery: -1})
					lease := take(t, l)
					time.Sleep(time.Second)
					wallRunsAhead(t, c.ahead)
					err := lease.Err()
					if (err != nil) != (c.asks > 0) || err != nil && !errors.Is(err, ErrUnavailable) {
						t.Errorf("Err: %v", err)
					}
					for range 2 {
						if err := guarded(l, lease); !errors.Is(err, c.want) {
							t.Errorf("%v, want %v", err, c.want)
						}
					}
					asks := c.asks
					if call == "Extend" && c.want == nil {
						asks = 2 // by itself
					}
					if d.extends != asks {
						t.Errorf("the service was asked %d times, want %d", d.extends, asks)
					}
					if c.want == nil && c.asks > 0 && call != "Extend" {
						// The earlier deadline rested on a clock that had stood still.
						if left := lease.grant.trust.Left(trust.Now()); left < 29*time.Second || left > 30*time.Second {
							t.Errorf("trusted for another %s", left)
						}
					}
				})
			})
		}
	}
}

// asked is a service that counts how often it is asked for a lease.
type asked struct {
	granter
	held    bool
	silent  bool
	extends int
	exact   bool // was one of them
}

func (d *asked) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	d.extends++
	d.exact = d.exact || reqs[0].Exact
	if d.silent {
		return []driver.ExtendReply{{Err: driver.ErrTemporary}}
	}
	return []driver.ExtendReply{{Held: d.held}}
}
