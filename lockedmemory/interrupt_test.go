package lockedmemory_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// interrupting has memories with the policy Interrupt in three processes, over the services of s.
func interrupting(t *testing.T, s *stoppable, opts lockedmemory.Options) (all []*lockedmemory.LockedMemory[string, string]) {
	t.Helper()
	opts.Busy = lockedmemory.Interrupt
	for range 3 {
		locker, err := distlock.New(s.locks, &distlock.Options{Interruptible: true})
		must(t, err)
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		key := lockedmemory.FixedKey(session)
		store, err := sessionstore.New(s.sessions, key, sessionstore.JSON[string]{}, nil)
		must(t, err)
		m, err := lockedmemory.New(store, locker, key, &opts)
		must(t, err)
		all = append(all, m)
	}
	return all
}

// asked is closed when the context of the work has ended.
func (r *running) asked() <-chan struct{} {
	lease, _ := lockedmemory.Lease(r.ctx)
	return lease.Context().Done()
}

// isSuperseded checks the end of an Answer whose message a newer one has superseded.
func isSuperseded(t *testing.T, id string, err error) {
	t.Helper()
	if !errors.Is(err, lockedmemory.ErrSuperseded) || !errors.Is(err, lockedmemory.ErrStopped) || errors.Is(err, distlock.ErrInterrupted) {
		t.Errorf("Answer of %s: %v; want ErrSuperseded", id, err)
	}
}

// answers begins an Answer in the background.
func answers(t *testing.T, m *lockedmemory.LockedMemory[string, string], id string) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- second(m.Answer(t.Context(), id, id, reply("to "+id))) }()
	synctest.Wait()
	return ended
}

// Of messages that come one after the other, the newest is answered, and the others are superseded: the one
// that runs, at once, and the one that waits, also if it is granted before it looks.
func TestInterrupt_O_newestIsAnswered(t *testing.T) {
	for _, ignores := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			s.sessions.before = func(c storedriver.CloseRequest) error {
				if c.ID != "" && (c.Below == 0 || c.Below > time.Now().Add(time.Minute).UnixMicro()) {
					t.Errorf("a late copy of %+v would end a redelivery", c)
				}
				return nil
			}
			m := interrupting(t, s, lockedmemory.Options{})
			oldest := runs(t, m[0], "oldest")
			older := answers(t, m[1], "older")
			<-oldest.asked()
			newest := answers(t, m[2], "newest")
			copied := answers(t, m[1], "newest") // it waits for the answer, and interrupts nothing
			time.Sleep(ignores)
			oldest.leave("too late")
			isSuperseded(t, "oldest", <-oldest.ended)
			isSuperseded(t, "older", <-older)
			must(t, errors.Join(<-newest, <-copied))
			s.holds(t, "newest", "to newest")
			for _, id := range []string{"oldest", "older"} {
				_, err := m[0].Answer(t.Context(), id, "q", func(context.Context) ([]string, error) {
					t.Errorf("the function of %s was run", id)
					return nil, errInner
				})
				isSuperseded(t, id, err)
			}
		})
	}
}

// With an After of 1.5 times the 95th percentile of an answer, messages that come every third of an answer
// end few of the turns that have begun.
func TestInterrupt_O_after_begunTurnsAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, mean = 300, 3 * time.Second
		random := rand.New(rand.NewPCG(1, 1))
		var takes []time.Duration
		for range messages {
			takes = append(takes, time.Duration(float64(mean)*math.Exp(random.NormFloat64()/2-0.125)))
		}
		p95 := slices.Sorted(slices.Values(takes))[messages*95/100]
		m := interrupting(t, newStoppable(t), lockedmemory.Options{After: p95 * 3 / 2})
		var begun, stored, superseded atomic.Int32
		var all sync.WaitGroup
		for n, lasts := range takes {
			all.Go(func() {
				_, err := m[n%3].Answer(t.Context(), fmt.Sprint(n), "q", func(ctx context.Context) ([]string, error) {
					begun.Add(1)
					select {
					case <-time.After(lasts):
						return []string{"a"}, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				switch {
				case err == nil:
					stored.Add(1)
				case errors.Is(err, lockedmemory.ErrSuperseded):
					superseded.Add(1)
				default:
					t.Error(err)
				}
			})
			time.Sleep(mean / 3)
		}
		all.Wait()
		t.Logf("%d messages: %d turns begun, %d stored, %d messages superseded", messages, begun.Load(), stored.Load(), superseded.Load())
		if stored.Load()*100 < begun.Load()*95 || superseded.Load() < messages/3 {
			t.Error("too few of the begun turns were stored, or too many have begun")
		}
	})
}

// A turn that fails in its grace is superseded by the message that asked it.
func TestInterrupt_O_failedInItsGrace_superseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m := interrupting(t, s, lockedmemory.Options{Grace: time.Second})
		older := make(chan error, 1)
		go func() {
			older <- second(m[0].Answer(t.Context(), "older", "q", func(ctx context.Context) ([]string, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}))
		}()
		synctest.Wait()
		must(t, <-answers(t, m[1], "newer"))
		<-older // it ended before the newer message was granted
		_, err := m[0].Answer(t.Context(), "older", "q", reply("again"))
		isSuperseded(t, "older", err)
		s.holds(t, "newer", "to newer")
	})
}

// A repeated message waits for its own answer, however long that takes.
func TestInterrupt_O_copyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m := interrupting(t, s, lockedmemory.Options{})
		first := runs(t, m[0], "id")
		again := answers(t, m[1], "id")
		time.Sleep(time.Minute)
		first.leave("a")
		must(t, errors.Join(<-first.ended, <-again))
		s.holds(t, "q", "a")
	})
}

// A Delete that comes before a stored answer is read opens the message: the caller is told to repeat.
func TestInterrupt_O_deletedBeforeItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m := interrupting(t, s, lockedmemory.Options{})
		must(t, <-answers(t, m[0], "id"))
		s.sessions.after = func() {
			s.sessions.after = nil
			must(t, s.memory.Delete(t.Context()))
		}
		if err := <-answers(t, m[1], "id"); !errors.Is(err, distlock.ErrInterrupted) {
			t.Errorf("%v; want ErrInterrupted", err)
		}
		must(t, <-answers(t, m[1], "id"))
		s.holds(t, "id", "to id")
	})
}

// With a grace, an answer that comes within it is stored, also after a Stop of another message. Later, the
// message is superseded.
func TestInterrupt_O_grace(t *testing.T) {
	for late, wait := range map[bool]time.Duration{false: time.Second, true: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			m := interrupting(t, s, lockedmemory.Options{Grace: 2 * time.Second})
			first := runs(t, m[0], "first")
			next := answers(t, m[1], "next")
			<-first.asked()
			s.stops(t, "other", 0, false)
			time.Sleep(wait)
			first.leave("partial")
			if err := <-first.ended; late {
				isSuperseded(t, "first", err)
			} else {
				must(t, err)
			}
			must(t, <-next)
			if late {
				s.holds(t, "next", "to next")
			} else {
				s.holds(t, "q", "partial", "next", "to next")
			}
		})
	}
}

// A turn that is younger than After is not ended, and a stream of messages lets one in so often be answered.
func TestInterrupt_L_sparesYoungTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m := interrupting(t, s, lockedmemory.Options{After: 10 * time.Second})
		first := runs(t, m[0], "first")
		began := time.Now()
		next := answers(t, m[1], "next")
		<-first.asked()
		if age := time.Since(began); age < 10*time.Second || age > 11*time.Second {
			t.Errorf("the turn was ended after %s", age)
		}
		first.leave()
		isSuperseded(t, "first", <-first.ended)
		must(t, <-next)
	})
}

// A Turn ends a Turn. A write outside a turn waits.
func TestInterrupt_L_turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m := interrupting(t, s, lockedmemory.Options{})
		began, first := make(chan bool), make(chan error, 1)
		go func() {
			first <- m[0].Turn(t.Context(), func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-began
		saved := make(chan error, 1)
		go func() { saved <- m[1].Save(t.Context(), "q", "a") }()
		time.Sleep(time.Minute)
		if len(saved) > 0 {
			t.Error("the write did not wait")
		}
		must(t, m[2].Turn(t.Context(), func(context.Context) error { return nil }))
		if err := <-first; !errors.Is(err, distlock.ErrInterrupted) {
			t.Errorf("the first turn: %v", err)
		}
		must(t, <-saved)
	})
}

// A message that is stopped while it waits leaves.
func TestInterrupt_O_stoppedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m := interrupting(t, s, lockedmemory.Options{})
		first := runs(t, m[0], "first")
		waits := answers(t, m[1], "waits")
		s.stops(t, "waits", 0, false)
		time.Sleep(time.Second) // the turn runs on
		select {
		case err := <-waits:
			isStoppedError(t, err)
		default:
			t.Error("it waits on")
		}
		first.leave()
		isSuperseded(t, "first", <-first.ended)
	})
}

func TestInterrupt_badOptions(t *testing.T) {
	s, key := newStoppable(t), lockedmemory.FixedKey(session)
	lockers := map[driver.Driver]error{memlock.NewDriver(): distlock.ErrInvalidOption, struct{ driver.Driver }{memlock.NewDriver()}: errors.ErrUnsupported}
	for d, want := range lockers {
		locker, err := distlock.New(d, &distlock.Options{TTL: time.Second})
		must(t, err)
		defer locker.Close(t.Context())
		for name, opts := range map[string]lockedmemory.Options{
			"an unknown policy":   {Busy: lockedmemory.Interrupt + 1},
			"a negative grace":    {Busy: lockedmemory.Interrupt, Grace: -1},
			"a negative age":      {Busy: lockedmemory.Interrupt, After: -1},
			"a grace above a TTL": {Busy: lockedmemory.Interrupt, Grace: time.Second + 1},
		} {
			if _, err := lockedmemory.New(s.store, locker, key, &opts); !errors.Is(err, distlock.ErrInvalidOption) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err = lockedmemory.New(s.store, locker, key, &lockedmemory.Options{Busy: lockedmemory.Interrupt})
		if errors.Is(want, errors.ErrUnsupported) != errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a Locker whose backend asks: %v", err)
		}
		_, err = lockedmemory.New(struct {
			lockedmemory.Memory[string, string]
		}{s.store}, locker, key, &lockedmemory.Options{Busy: lockedmemory.Interrupt})
		if !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("without a store: %v", err)
		}
	}
}
