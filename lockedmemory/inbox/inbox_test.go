package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	memory   = lockedmemory.LockedMemory[string, string]
	question = lockedmemory.Question[string]
	fn       = inbox.Func[string]
)

var (
	errModel = errors.New("the model refuses")
	errWire  = fmt.Errorf("%w: down", driver.ErrNotDone)
)

// counted is a driver of sessions that counts its calls, and whose Inboxes may fail.
type counted struct {
	storedriver.Driver
	mu      sync.Mutex
	calls   map[string]int
	inboxes error
	put     func() // after the next Put
}

func (c *counted) count(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call]++
}

func (c *counted) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	c.count("Append")
	return c.Driver.Append(ctx, a)
}

func (c *counted) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	c.count("Read")
	return c.Driver.Read(ctx, r)
}

func (c *counted) Put(ctx context.Context, p storedriver.Put) (storedriver.Verdict, error) {
	c.count("Put")
	v, err := c.Driver.Put(ctx, p)
	if after := c.put; after != nil {
		c.put = nil
		after()
	}
	return v, err
}

func (c *counted) Pending(ctx context.Context, a storedriver.Access) (storedriver.Verdict, []storedriver.Item, error) {
	c.count("Pending")
	return c.Driver.Pending(ctx, a)
}

func (c *counted) Inboxes(ctx context.Context, after string) ([]string, string, error) {
	names, next, err := c.Driver.Inboxes(ctx, after)
	slices.Sort(names)
	return names, next, errors.Join(err, c.inboxes)
}

// process has what one has, beside others over the same services.
type process struct {
	*testing.T
	locks    *drivertest.Faults
	sessions *counted
	memory   *memory
	inbox    *inbox.Inbox[string, string]
}

func newProcess(t *testing.T, opts *inbox.Options, storeOpts *sessionstore.Options) *process {
	t.Helper()
	sessions, err := memstore.NewDriver(nil)
	must(t, err)
	p := &process{T: t, locks: drivertest.NewFaults(memlock.NewDriver()), sessions: &counted{Driver: sessions, calls: make(map[string]int)}}
	return p.another(opts, storeOpts)
}

// another is a further process.
func (p *process) another(opts *inbox.Options, storeOpts *sessionstore.Options) *process {
	p.Helper()
	store, err := sessionstore.New(p.sessions, lockedmemory.SessionKey, sessionstore.JSON[string]{}, storeOpts)
	must(p, err)
	locker, err := distlock.New(p.locks, &distlock.Options{TTL: time.Second, Interruptible: true, Wait: -1, Logger: slog.New(slog.DiscardHandler)})
	must(p, err)
	p.Cleanup(func() { _ = locker.Close(context.Background()) })
	other := *p
	other.memory, err = lockedmemory.New(store, locker, lockedmemory.SessionKey, &lockedmemory.Options{Wait: -1})
	must(p, err)
	other.inbox, err = inbox.New(other.memory, opts)
	must(p, err)
	return &other
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *process) in(session string) context.Context {
	return lockedmemory.WithSession(p.Context(), session)
}

// puts puts questions into the inbox of a session, with spaces between them.
func (p *process) puts(session, ids string) {
	p.Helper()
	for _, id := range strings.Fields(ids) {
		must(p, p.memory.Put(p.in(session), id, "q of "+id))
	}
}

// pends checks what is pending.
func (p *process) pends(session, want string) {
	p.Helper()
	pending, err := p.memory.Pending(p.in(session))
	var ids []string
	for _, q := range pending {
		ids = append(ids, q.ID)
	}
	if err != nil || strings.Join(ids, " ") != want {
		p.Errorf("pending in %s: %q, %v; want %q", session, ids, err, want)
	}
}

func (p *process) holds(session string, want ...string) {
	p.Helper()
	if history, err := p.memory.Load(p.in(session), ""); err != nil || !slices.Equal(history, want) {
		p.Errorf("the history of %s is %q, %v; want %q", session, history, err, want)
	}
}

// submits is a Submit in the background.
type submits struct {
	answer []string
	err    error
	ended  chan bool
	after  time.Duration
}

func (p *process) submits(session, id string, answer fn) *submits {
	s, began := &submits{ended: make(chan bool)}, time.Now()
	go func() {
		defer close(s.ended)
		s.answer, s.err = p.inbox.Submit(p.in(session), id, "q of "+id, answer)
		s.after = time.Since(began)
	}()
	synctest.Wait()
	return s
}

// gets checks what Submit returns: an answer or an error.
func (s *submits) gets(t *testing.T, want string, failure error) {
	t.Helper()
	<-s.ended
	if want == "" && (s.answer != nil || !errors.Is(s.err, failure)) || want != "" && (s.err != nil || !slices.Equal(s.answer, []string{want})) {
		t.Errorf("Submit: %q, %v; want %q, %v", s.answer, s.err, want, failure)
	}
	if failure != nil && !errors.Is(failure, lockedmemory.ErrStopped) && errors.Is(s.err, lockedmemory.ErrStopped) {
		t.Errorf("Submit of an open question: %v", s.err)
	}
}

// asked notes what a function is asked.
type asked struct {
	mu    sync.Mutex
	calls []string
	began time.Time
	at    []time.Duration
	// during runs in each call. Its error is that of the function.
	during func(ctx context.Context, ids string) error
}

func newAsked() *asked { return &asked{began: time.Now()} }

// answer answers "to" the IDs of the questions.
func (a *asked) answer(ctx context.Context, open []question) ([]string, error) {
	var ids []string
	for _, q := range open {
		if ids = append(ids, q.ID); q.Message != "q of "+q.ID {
			return nil, fmt.Errorf("the question is %+v", q)
		}
	}
	all := strings.Join(ids, " ")
	a.mu.Lock()
	a.calls, a.at = append(a.calls, all), append(a.at, time.Since(a.began))
	a.mu.Unlock()
	if a.during != nil {
		if err := a.during(ctx, all); err != nil {
			return nil, err
		}
	}
	return []string{"to " + all}, nil
}

// was checks the calls of the function.
func (a *asked) was(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(a.calls, want) {
		t.Errorf("the function was asked %q; want %q", a.calls, want)
	}
}

// fails makes the function fail for questions with one of the IDs.
func (a *asked) fails(bad ...string) *asked {
	a.during = func(_ context.Context, ids string) error {
		for _, id := range strings.Fields(ids) {
			if slices.Contains(bad, id) {
				return errModel
			}
		}
		return nil
	}
	return a
}

func TestNew_C_badOptions(t *testing.T) {
	p := newProcess(t, nil, nil)
	for _, opts := range []inbox.Options{{Quiet: -1}, {Max: -1}, {Most: -1}, {Most: 1, Newest: true}} {
		if b, err := inbox.New(p.memory, &opts); b != nil || !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if _, err := inbox.New[string, string](nil, nil); !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("without a memory: %v", err)
	}
}

// Three questions within Quiet make one turn, from any process, and each caller gets the answer.
func TestSubmit_O_quiet_oneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := &inbox.Options{Quiet: 300 * time.Millisecond}
		p := newProcess(t, opts, nil)
		other, a := p.another(opts, nil), newAsked()
		var all []*submits
		for i, of := range []*process{p, other, p} {
			all = append(all, of.submits("s", fmt.Sprint(i), a.answer))
			time.Sleep(200 * time.Millisecond)
		}
		for _, s := range all {
			s.gets(t, "to 0 1 2", nil)
		}
		a.was(t, "0 1 2")
		if a.at[0] != 700*time.Millisecond {
			t.Errorf("the function was asked after %s", a.at[0])
		}
		p.holds("s", "q of 0", "q of 1", "q of 2", "to 0 1 2")
		alone := p.submits("s", "3", a.answer)
		if alone.gets(t, "to 3", nil); alone.after != 300*time.Millisecond {
			t.Errorf("a single question is answered after %s", alone.after)
		}
	})
}

// Max bounds the wait of a turn, also if questions come all the time.
func TestSubmit_O_max(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{0: 3 * time.Second, time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p, a := newProcess(t, &inbox.Options{Quiet: 300 * time.Millisecond, Max: most}, nil), newAsked()
			first := p.submits("s", "first", a.answer)
			for n := 0; time.Since(a.began) < 4*time.Second; n++ {
				time.Sleep(200 * time.Millisecond)
				p.puts("s", fmt.Sprint(n))
			}
			<-first.ended
			if first.err != nil || a.at[0] != want {
				t.Errorf("Max %s: the function was asked after %s; %v", most, a.at[0], first.err)
			}
		})
	}
}

// Most questions make a turn, the oldest first.
func TestSubmit_O_most(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newProcess(t, &inbox.Options{Most: 2}, nil), newAsked()
		p.puts("s", "a b c d")
		p.submits("s", "e", a.answer).gets(t, "to e", nil)
		a.was(t, "a b", "c d", "e")
		p.holds("s", "q of a", "q of b", "to a b", "q of c", "q of d", "to c d", "q of e", "to e")
	})
}

// The newest question is answered, and supersedes the others.
func TestSubmit_O_newest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newProcess(t, &inbox.Options{Newest: true, Quiet: time.Second}, nil), newAsked()
		p.puts("s", "a")
		b, c := p.submits("s", "b", a.answer), p.submits("s", "c", a.answer)
		b.gets(t, "", lockedmemory.ErrSuperseded)
		c.gets(t, "to c", nil)
		p.submits("s", "a", a.answer).gets(t, "", lockedmemory.ErrSuperseded)
		a.was(t, "c")
		p.holds("s", "q of c", "to c")
		p.submits("s", "d", a.answer).gets(t, "to d", nil)
		p.pends("s", "")
	})
}

// If the newest question cannot be answered, no older one is answered instead.
func TestSubmit_O_newest_fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newProcess(t, &inbox.Options{Newest: true}, nil), newAsked().fails("c")
		p.puts("s", "a b")
		p.submits("s", "c", a.answer).gets(t, "", errModel)
		p.submits("s", "a", a.answer).gets(t, "", errModel)
		if answered, err := p.inbox.Sweep(t.Context(), a.answer); answered != 0 || !errors.Is(err, errModel) {
			t.Errorf("Sweep: %d, %v", answered, err)
		}
		a.was(t, "c", "c", "c")
		p.pends("s", "a b c")
		a.fails()
		p.submits("s", "a", a.answer).gets(t, "", lockedmemory.ErrSuperseded)
		p.holds("s", "q of c", "to c")
	})
}

// A question that cannot be answered is no reason for the others to fail.
func TestSubmit_O_poison(t *testing.T) {
	for _, most := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			p, a := newProcess(t, &inbox.Options{Most: most}, nil), newAsked().fails("bad")
			p.puts("s", "bad a")
			p.submits("s", "b", a.answer).gets(t, "to b", nil)
			p.submits("s", "a", a.answer).gets(t, "to a", nil)
			p.submits("s", "bad", a.answer).gets(t, "", errModel)
			if a.calls = a.calls[4:]; most == 0 {
				a.was(t, "bad")
			}
			p.pends("s", "bad")
			p.holds("s", "q of b", "to b", "q of a", "to a")
		})
	}
	synctest.Test(t, func(t *testing.T) { // or that several are too large for an exchange
		p, a := newProcess(t, nil, &sessionstore.Options{MaxMessage: 1000}), newAsked()
		long := strings.Repeat("x", 490)
		p.puts("s", long+"1 "+long+"2")
		p.submits("s", "b", a.answer).gets(t, "to b", nil)
		a.was(t, "b")
		if answered, err := p.inbox.Sweep(t.Context(), a.answer); answered != 2 || err != nil {
			t.Errorf("Sweep: %d, %v", answered, err)
		}
	})
}

// A turn that was cut off calls the function no more.
func TestSubmit_O_cutOff(t *testing.T) {
	for name, c := range map[string]struct {
		cut  func(p *process, ctx context.Context)
		want error
	}{
		"stopped": {func(p *process, ctx context.Context) {
			if _, err := p.memory.Stop(p.in("s"), "a", 0); err != nil {
				p.Error(err)
			}
			<-ctx.Done()
		}, lockedmemory.ErrStopped},
		"lost": {func(p *process, ctx context.Context) {
			p.locks.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errWire} })
			<-ctx.Done()
			p.locks.Inject(nil)
		}, distlock.ErrLost},
	} {
		for n := range 50 { // ⚑ the context of the turn ends some time after that of the function
			most, asked := n%2, []string{"b a", "b"}[n%2]
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(t, &inbox.Options{Most: most}, nil)
				other, a := p.another(nil, nil), newAsked()
				p.puts("s", "b")
				a.during = func(ctx context.Context, _ string) error { c.cut(other, ctx); return errModel }
				p.submits("s", "a", a.answer).gets(t, "", c.want)
				a.was(t, asked)
				other.submits("s", "b", newAsked().answer).gets(t, map[string]string{"stopped": "to b", "lost": "to b a"}[name], nil)
			})
		}
	}
}

// Under a lost lease, Submit returns the answer that another process has stored since, or that it has stored itself.
func TestSubmit_O_lost_stored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, nil, nil)
		a := newAsked()
		a.during = func(ctx context.Context, _ string) error {
			a.during = nil
			p.locks.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errWire} })
			<-ctx.Done()
			p.locks.Inject(nil)
			other := p.another(nil, nil)
			other.submits("s", "a", newAsked().answer).gets(t, "to a", nil)
			return errModel
		}
		p.submits("s", "a", a.answer).gets(t, "to a", nil)
		p.holds("s", "q of a", "to a")
	})
}

// A Delete removes a question whose Submit waits. Submit fails, and puts it no second time.
func TestSubmit_O_deleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newProcess(t, nil, nil), newAsked()
		var waits, later *submits
		must(t, p.memory.Turn(p.in("s"), func(ctx context.Context) error {
			waits = p.another(nil, nil).submits("s", "a", a.answer)
			time.Sleep(time.Second)
			must(t, p.memory.Delete(ctx))
			p.sessions.calls["Put"] = 0
			later = p.another(nil, nil).submits("s", "b", a.answer) // after the Delete
			return nil
		}))
		waits.gets(t, "", sessionstore.ErrDeleted)
		later.gets(t, "to b", nil)
		a.was(t, "b")
		if n := p.sessions.calls["Put"]; n != 2 { // the second names the Delete
			t.Errorf("%d Puts after the Delete", n)
		}
		p.sessions.put = func() { must(t, p.memory.Delete(p.in("new"))) } // before the turn waits
		p.submits("new", "c", a.answer).gets(t, "", sessionstore.ErrDeleted)
		a.was(t, "b")
		p.pends("s", "")
	})
}

// A Stop ends the Submit of its question: while its turn runs, while it waits, and in the turn of another one.
func TestSubmit_O_stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, nil, nil)
		other := p.another(nil, nil)
		stop := func(id string) {
			t.Helper()
			if stored, err := other.memory.Stop(other.in("s"), id, 0); stored || err != nil {
				t.Errorf("Stop of %q: %t, %v", id, stored, err)
			}
		}
		a := newAsked()
		a.during = func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }
		runs := p.submits("s", "a", a.answer)
		waits, left := p.submits("s", "b", a.answer), other.submits("s", "c", a.answer)
		stop("b")
		a.during = nil
		stop("a")
		runs.gets(t, "", lockedmemory.ErrStopped)
		waits.gets(t, "", lockedmemory.ErrStopped)
		left.gets(t, "to c", nil)
		a.was(t, "a", "c")
		p.holds("s", "q of c", "to c")

		a = newAsked()
		a.during = func(context.Context, string) error { a.during = nil; stop("d"); return nil }
		p.puts("s", "d")
		p.submits("s", "e", a.answer).gets(t, "to e", nil)
		a.was(t, "d e", "e")
		p.submits("s", "d", a.answer).gets(t, "", lockedmemory.ErrStopped)

		a = newAsked() // while the turn waits for more
		quiet := p.another(&inbox.Options{Quiet: time.Second}, nil)
		f, g := quiet.submits("s", "f", a.answer), quiet.submits("s", "g", a.answer)
		stop("g")
		f.gets(t, "to f", nil)
		g.gets(t, "", lockedmemory.ErrStopped)
		f = quiet.submits("s", "h", a.answer)
		stop("h")
		f.gets(t, "", lockedmemory.ErrStopped)
		a.was(t, "f")
	})
}

// A repetition returns the stored answer, and runs nothing.
func TestSubmit_O_repeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newProcess(t, nil, nil), newAsked()
		p.submits("s", "a", a.answer).gets(t, "to a", nil)
		p.another(nil, nil).submits("s", "a", a.answer).gets(t, "to a", nil)
		must(t, p.memory.SaveOnce(p.in("s"), "alone", "q of alone"))
		p.submits("s", "alone", a.answer).gets(t, "", lockedmemory.ErrAnswerGone)
		must(t, p.memory.Clear(p.in("s")))
		p.submits("s", "a", a.answer).gets(t, "", lockedmemory.ErrAnswerGone)
		a.was(t, "a")
		p.submits("s", "", a.answer).gets(t, "", lockedmemory.ErrInvalidID)
	})
}

// Sweep answers all of all sessions, turn by turn. A session that fails does not end the others.
func TestSweep_O_sessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a := newProcess(t, &inbox.Options{Most: 2}, nil), newAsked().fails("bad")
		p.puts("s1", "a b c")
		p.puts("s2", "bad")
		p.puts("s3", "d")
		answered, err := p.inbox.Sweep(t.Context(), a.answer)
		if answered != 4 || !errors.Is(err, errModel) || strings.Contains(err.Error(), `"s3"`) || !strings.Contains(err.Error(), `"s2"`) {
			t.Errorf("Sweep: %d, %v", answered, err)
		}
		a.was(t, "a b", "c", "bad", "d")
		p.pends("s2", "bad")
		a.fails()
		if answered, err := p.inbox.Sweep(t.Context(), a.answer); answered != 1 || err != nil {
			t.Errorf("Sweep: %d, %v", answered, err)
		}
		if answered, err := p.inbox.Sweep(t.Context(), a.answer); answered != 0 || err != nil {
			t.Errorf("Sweep of nothing: %d, %v", answered, err)
		}
	})
}

// Sweep leaves no question behind one that cannot be answered or read, or that was stopped.
func TestSweep_O_behindOthers(t *testing.T) {
	for _, most := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			p, a := newProcess(t, &inbox.Options{Most: most}, nil), newAsked().fails("bad")
			p.puts("s", "bad a b c")
			answered, err := p.inbox.Sweep(t.Context(), a.answer)
			if answered != 3 || !errors.Is(err, errModel) {
				t.Errorf("Most %d: Sweep: %d, %v", most, answered, err)
			}
			p.pends("s", "bad")
			alone := slices.DeleteFunc(a.calls, func(ids string) bool { return strings.Contains(ids, " ") })
			if !slices.Equal(alone, []string{"bad", "a", "b", "c"}) {
				t.Errorf("Most %d: the function was asked %q", most, alone)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			p, a := newProcess(t, &inbox.Options{Most: most}, nil), newAsked()
			v, err := p.sessions.Put(t.Context(), storedriver.Put{Session: "s", ID: "unreadable", Question: []byte("{")})
			if err != nil || v.Outcome != storedriver.Done {
				t.Errorf("Put: %+v, %v", v, err)
			}
			p.puts("s", "a b c")
			answered, err := p.inbox.Sweep(t.Context(), a.answer)
			if answered != 3 || !errors.Is(err, sessionstore.ErrCodec) {
				t.Errorf("Most %d: Sweep: %d, %v", most, answered, err)
			}
			p.submits("s", "unreadable", a.answer).gets(t, "", sessionstore.ErrCodec)
			p.submits("s", "d", a.answer).gets(t, "to d", nil)
			p.pends("s", "unreadable")
		})
		synctest.Test(t, func(t *testing.T) {
			p, a := newProcess(t, &inbox.Options{Most: most}, nil), newAsked()
			p.puts("s", "a b c")
			a.during = func(context.Context, string) error {
				a.during = nil
				_, err := p.memory.Stop(p.in("s"), "a", 0)
				return err
			}
			if answered, err := p.inbox.Sweep(t.Context(), a.answer); answered != 2 || err != nil {
				t.Errorf("Most %d: Sweep: %d, %v", most, answered, err)
			}
			p.pends("s", "")
		})
	}
}

// If Options.Session names another session, Sweep answers nothing.
func TestSweep_C_otherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := ""
		p, a := newProcess(t, &inbox.Options{Session: func(ctx context.Context, session string) context.Context {
			return lockedmemory.WithSession(ctx, name+session)
		}}, nil), newAsked()
		p.puts("s", "a")
		p.puts("x/s", "b")
		for i, want := range []error{distlock.ErrInvalidOption, nil} {
			name = []string{"x/", ""}[i]
			if answered, err := p.inbox.Sweep(t.Context(), a.answer); !errors.Is(err, want) || answered != 2*i {
				t.Errorf("named %q: Sweep: %d, %v; want %v", name, answered, err, want)
			}
		}
		a.was(t, "a", "b")
		p.sessions.inboxes = errWire
		if answered, err := p.inbox.Sweep(t.Context(), a.answer); !errors.Is(err, distlock.ErrUnavailable) || answered != 0 {
			t.Errorf("without a list: Sweep: %d, %v", answered, err)
		}
	})
}

// Submit makes at most two requests more than an Answer, and Put makes one.
func TestInbox_requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, nil, nil)
		requests := func() (all int) {
			for _, n := range p.sessions.calls {
				all += n
			}
			for _, op := range []drivertest.Op{drivertest.Acquire, drivertest.Extend, drivertest.Release, drivertest.Raise, drivertest.Ask} {
				all += p.locks.Calls(op)
			}
			return all
		}
		calls := func(call func() error) int {
			t.Helper()
			before := requests()
			must(t, call())
			return requests() - before
		}
		for range 2 {
			id := fmt.Sprint(requests())
			answer := calls(func() error {
				_, err := p.memory.Answer(p.in("s"), id, "q", func(context.Context) ([]string, error) { return []string{"a"}, nil })
				return err
			})
			submit := calls(func() error {
				_, err := p.inbox.Submit(p.in("s"), id+"/", "q of "+id+"/", newAsked().answer)
				return err
			})
			put := calls(func() error { return p.memory.Put(p.in("s"), "put"+id, "q of put"+id) })
			together := calls(func() error { // with what was put
				_, err := p.inbox.Submit(p.in("s"), id+"//", "q of "+id+"//", newAsked().answer)
				return err
			})
			if submit > answer+2 || together > answer+2 || put != 1 {
				t.Errorf("an Answer makes %d requests, a Submit %d and %d, a Put %d: %v", answer, submit, together, put, p.sessions.calls)
			}
		}
	})
}
