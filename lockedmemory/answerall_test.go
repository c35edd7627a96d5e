package lockedmemory_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// What a driver does with an inbox and with several IDs are tests of package storetest.

type (
	question = lockedmemory.Question[string]
	allFunc  = func(context.Context, []question) ([]string, error)
)

// questions makes those of IDs with spaces between them. A minus before an ID supersedes the question.
func questions(ids string) (all []question) {
	for _, id := range strings.Fields(ids) {
		name := strings.TrimPrefix(id, "-")
		all = append(all, question{ID: name, Message: "q of " + name, Superseded: name != id})
	}
	return all
}

// asks is a function that answers with an answer, and notes the IDs of the questions that it gets.
func asks(got *[]string, answer string) allFunc {
	return func(_ context.Context, open []question) ([]string, error) {
		var ids []string
		for _, q := range open {
			if ids = append(ids, q.ID); q.Message != "q of "+q.ID {
				return nil, fmt.Errorf("the question is %+v", q)
			}
		}
		*got = append(*got, strings.Join(ids, " "))
		return []string{answer}, nil
	}
}

// is checks the results of an AnswerAll: an answer, an error, or nil for an error that only matches that of the call.
func is(t *testing.T, what string, results []lockedmemory.Result[string], err error, want ...any) {
	t.Helper()
	if len(results) != len(want) {
		t.Fatalf("%s: %+v, %v; want %d results", what, results, err, len(want))
	}
	var open error
	for i, r := range results {
		failure, _ := want[i].(error)
		if answer, ok := want[i].(string); ok && (r.Err != nil || !slices.Equal(r.Answer, []string{answer})) ||
			!ok && (r.Answer != nil || r.Err == nil || !errors.Is(r.Err, failure)) {
			t.Errorf("%s: result %d is %q, %v; want %v", what, i, r.Answer, r.Err, want[i])
		}
		if failure != nil && !errors.Is(failure, lockedmemory.ErrStopped) && !errors.Is(failure, lockedmemory.ErrAnswerGone) {
			open = cmp.Or(open, failure)
			isNoStop(t, r.Err)
		}
	}
	if !errors.Is(err, open) || (err == nil) != (open == nil) {
		t.Errorf("%s: %v; want %v", what, err, open)
	}
}

// isNoStop checks that the error of an open message does not say that it is closed.
func isNoStop(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, lockedmemory.ErrStopped) {
		t.Errorf("the error of an open message is %v", err)
	}
}

// hooked is a driver of sessions that calls hooks, if there are any, and counts its calls.
type hooked struct {
	storedriver.Driver
	list    func() error
	appends func(storedriver.Append, func() (storedriver.Verdict, error)) (storedriver.Verdict, error)
	calls   map[string]int
}

func (h *hooked) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	h.calls["Read"]++
	return h.Driver.Read(ctx, r)
}

func (h *hooked) Pending(ctx context.Context, a storedriver.Access) (storedriver.Verdict, []storedriver.Item, error) {
	if h.calls["Pending"]++; h.list != nil {
		if err := h.list(); err != nil {
			return storedriver.Verdict{}, nil, err
		}
	}
	return h.Driver.Pending(ctx, a)
}

func (h *hooked) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	do := func() (storedriver.Verdict, error) { return h.Driver.Append(ctx, a) }
	if h.calls["Append"]++; h.appends != nil {
		return h.appends(a, do)
	}
	return do()
}

func newHooked(t *testing.T) (*stoppable, *hooked) {
	t.Helper()
	s := newStoppable(t)
	h := &hooked{Driver: s.sessions.Driver, calls: make(map[string]int)}
	s.sessions.Driver = h
	return s, h
}

// pends checks which questions are pending.
func (s *stoppable) pends(t *testing.T, want string) {
	t.Helper()
	pending, err := s.memory.Pending(t.Context())
	var ids []string
	for _, q := range pending {
		ids = append(ids, q.ID)
	}
	if err != nil || strings.Join(ids, " ") != want {
		t.Errorf("pending: %q, %v; want %q", ids, err, want)
	}
}

func (s *stoppable) puts(t *testing.T, ids string) {
	t.Helper()
	for _, q := range questions(ids) {
		must(t, s.memory.Put(t.Context(), q.ID, q.Message))
	}
}

// Decided questions have their answers, and the function gets the others. A second call, in another order, finds all.
func TestAnswerAll_O_known(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		var got []string
		must(t, second(s.other.Answer(t.Context(), "known", "q of known", reply("first"))))
		must(t, s.other.SaveOnce(t.Context(), "alone", "q of alone"))
		s.stops(t, "closed", 0, false)
		for n, ids := range []string{"closed known alone a b", "b alone closed a known"} {
			want := map[string]any{"closed": lockedmemory.ErrStopped, "known": "first", "alone": lockedmemory.ErrAnswerGone, "a": "answer", "b": "answer"}
			var inOrder []any
			for _, id := range strings.Fields(ids) {
				inOrder = append(inOrder, want[id])
			}
			m := []*lockedmemory.LockedMemory[string, string]{s.memory, s.other}[n]
			results, err := m.AnswerAll(t.Context(), questions(ids), asks(&got, "answer"))
			is(t, ids, results, err, inOrder...)
		}
		if !slices.Equal(got, []string{"a b"}) {
			t.Errorf("the function got %q", got)
		}
		s.holds(t, "q of known", "first", "q of alone", "q of a", "q of b", "answer")
		for _, id := range []string{"a", "b"} {
			if answer, err := s.memory.Answer(t.Context(), id, "other", reply("other")); err != nil || !slices.Equal(answer, []string{"answer"}) {
				t.Errorf("Answer of %s: %q, %v", id, answer, err)
			}
			if err := s.memory.SaveOnce(t.Context(), id, "q of "+id, "answer"); !errors.Is(err, sessionstore.ErrIDConflict) {
				t.Errorf("SaveOnce of %s: %v", id, err)
			}
		}
		if answer, err := s.memory.Answer(t.Context(), "alone", "q", reply("a")); answer != nil || !errors.Is(err, lockedmemory.ErrAnswerGone) {
			t.Errorf("Answer of a message without an answer: %q, %v", answer, err)
		}
		must(t, s.memory.Clear(t.Context()))
		results, err := s.memory.AnswerAll(t.Context(), questions("a b"), asks(&got, "again"))
		is(t, "cleared", results, err, lockedmemory.ErrAnswerGone, lockedmemory.ErrAnswerGone)
		if results, err := s.memory.AnswerAll(t.Context(), nil, nil); len(results) > 0 || err != nil {
			t.Errorf("of no question: %+v, %v", results, err)
		}
	})
}

// Questions that no call could answer are refused. Nothing is written, and the function is not run.
func TestAnswerAll_C_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		var err error
		s.store, err = sessionstore.New(s.sessions, lockedmemory.FixedKey(session), sessionstore.JSON[string]{}, &sessionstore.Options{MaxMessage: 2000})
		must(t, err)
		s.memory, err = lockedmemory.New(s.store, fencing.Locker(leaseOf(t, s.memory)), lockedmemory.FixedKey(session), nil)
		must(t, err)
		interrupts, err := lockedmemory.New(s.store, fencing.Locker(leaseOf(t, s.memory)), lockedmemory.FixedKey(session),
			&lockedmemory.Options{Busy: lockedmemory.Interrupt})
		must(t, err)
		var many string
		for i := range 129 {
			many += fmt.Sprint(" ", i)
		}
		large := questions("a b c")
		for i := range large {
			large[i].Message = strings.Repeat("x", 700)
		}
		for _, c := range []struct {
			what      string
			memory    *lockedmemory.LockedMemory[string, string]
			questions []question
			want      error
			results   int
		}{
			{"an ID twice", s.memory, questions("a b a"), lockedmemory.ErrInvalidID, 0},
			{"a bad ID", s.memory, questions("a " + strings.Repeat("x", 513)), lockedmemory.ErrInvalidID, 0},
			{"the policy Interrupt", interrupts, questions("a b"), distlock.ErrInvalidOption, 0},
			{"many", s.memory, questions(many), sessionstore.ErrTooLarge, 129},
			{"large together", s.memory, large, sessionstore.ErrTooLarge, 3},
		} {
			results, err := c.memory.AnswerAll(t.Context(), c.questions, func(context.Context, []question) ([]string, error) {
				t.Errorf("%s: the function was run", c.what)
				return []string{"a"}, nil
			})
			if !errors.Is(err, c.want) || len(results) != c.results || c.results > 0 && !errors.Is(results[c.results-1].Err, c.want) {
				t.Errorf("%s: %+v, %v", c.what, results, err)
			}
		}
		s.holds(t)
		var got []string
		results, err := s.memory.AnswerAll(t.Context(), questions(many)[:128], asks(&got, "a"))
		if err != nil || len(results) != 128 || len(got) != 1 {
			t.Errorf("128 questions: %d results, %v", len(results), err)
		}
		results, err = s.memory.AnswerAll(t.Context(), large[:2], func(context.Context, []question) ([]string, error) {
			return []string{strings.Repeat("x", 1998)}, nil // there is room for it
		})
		if err != nil || results[1].Err != nil {
			t.Errorf("large: %v", err)
		}
		if err := interrupts.Put(t.Context(), "a", "q"); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("Put with the policy Interrupt: %v", err)
		}
		s.pends(t, "")
	})
}

// With an error, the open questions have it, nothing is stored, and a repetition answers them.
func TestAnswerAll_O_failure_open(t *testing.T) {
	late := func(k *kept, ctx context.Context) { // the lease is lost
		down(k.faults)
		<-ctx.Done()
		k.faults.Inject(nil)
	}
	for name, c := range map[string]struct {
		fn   func(k *kept, ctx context.Context, leave func()) ([]string, error)
		want error
	}{
		"its error":  {func(*kept, context.Context, func()) ([]string, error) { return []string{"half"}, errInner }, errInner},
		"no message": {func(*kept, context.Context, func()) ([]string, error) { return nil, nil }, distlock.ErrInvalidOption},
		"another message is stopped": {func(k *kept, ctx context.Context, _ func()) ([]string, error) {
			return nil, fmt.Errorf("step: %w", lockedmemory.ErrStopped)
		}, distlock.ErrInterrupted},
		"the caller leaves": {func(_ *kept, _ context.Context, leave func()) ([]string, error) {
			leave()
			return []string{"late"}, nil
		}, context.Canceled},
		"its lease is lost": {func(k *kept, ctx context.Context, _ func()) ([]string, error) {
			late(k, ctx)
			return []string{"late"}, nil
		}, distlock.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t, distlock.Options{TTL: time.Second}, nil)
				must(t, second(k.memory.Answer(t.Context(), "b", "q of b", reply("first"))))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				results, err := k.memory.AnswerAll(ctx, questions("a b -c d"), func(ctx context.Context, _ []question) ([]string, error) {
					return c.fn(k, ctx, leave)
				})
				is(t, "failed", results, err, c.want, "first", c.want, c.want)
				k.holds(t, "q of b", "first")
				var got []string
				results, err = k.memory.AnswerAll(t.Context(), questions("a b -c d"), asks(&got, "answer"))
				is(t, "repeated", results, err, "answer", "first", lockedmemory.ErrSuperseded, "answer")
				k.holds(t, "q of b", "first", "q of a", "q of d", "answer")
			})
		})
	}
}

// lingers is a session store whose AppendAll returns when its lease was lost.
type lingers struct {
	*sessionstore.Store[string, string]
}

func (l lingers) AppendAll(ctx context.Context, ids, superseded []string, messages ...string) error {
	err := l.Store.AppendAll(ctx, ids, superseded, messages...)
	<-ctx.Done()
	return err
}

func TestAnswerAll_O_lostAfterWrite_noFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{TTL: time.Second}, nil)
		memory, err := lockedmemory.New(lingers{k.store}, k.locker, lockedmemory.FixedKey(session), nil)
		must(t, err)
		results, err := memory.AnswerAll(t.Context(), questions("a -b c"), func(context.Context, []question) ([]string, error) {
			down(k.faults)
			return []string{"answer"}, nil
		})
		is(t, "lost", results, err, "answer", lockedmemory.ErrSuperseded, "answer")
	})
}

// A call that was cut off returns an answer that another one has stored since.
func TestAnswer_O_cutOff_storedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{TTL: time.Second}, nil)
		elsewhere, err := distlock.New(k.faults.Unwrap(), nil)
		must(t, err)
		defer elsewhere.Close(context.Background())
		other, err := lockedmemory.New(k.store, elsewhere, lockedmemory.FixedKey(session), nil)
		must(t, err)
		overtaken := func(ctx context.Context, ids string) {
			down(k.faults)
			<-ctx.Done()
			results, err := other.AnswerAll(t.Context(), questions(ids), asks(new([]string), "other"))
			must(t, errors.Join(err, results[0].Err))
			k.faults.Inject(nil)
		}
		answer, err := k.memory.Answer(t.Context(), "a", "q of a", func(ctx context.Context) ([]string, error) {
			overtaken(ctx, "a")
			return []string{"late"}, nil
		})
		if err != nil || !slices.Equal(answer, []string{"other"}) {
			t.Errorf("Answer: %q, %v", answer, err)
		}
		results, err := k.memory.AnswerAll(t.Context(), questions("b c"), func(ctx context.Context, _ []question) ([]string, error) {
			overtaken(ctx, "c")
			return []string{"late"}, nil
		})
		is(t, "overtaken", results, err, distlock.ErrLost, "other")
		results, err = k.memory.AnswerAll(t.Context(), questions("b d"), func(ctx context.Context, _ []question) ([]string, error) {
			overtaken(ctx, "d b")
			return []string{"late"}, nil
		})
		is(t, "all are stored", results, err, "other", "other")
	})
}

// A Stop of one question leaves the others. The function runs again without it.
func TestAnswerAll_O_stopped(t *testing.T) {
	for stops, want := range map[string][]string{"b": {"a b c", "a c"}, "c b": {"a b c", "a b", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			var got []string
			left := strings.Fields(stops)
			results, err := s.memory.AnswerAll(t.Context(), questions("a b c"), func(ctx context.Context, open []question) ([]string, error) {
				if len(left) > 0 {
					s.stopsFrom(t, s.other, left[0])
					left = left[1:]
				}
				return asks(&got, "answer")(ctx, open)
			})
			results[0].Answer = slices.Clip(results[0].Answer)
			wants := []any{"answer", lockedmemory.ErrStopped, "answer"}
			if len(want) == 3 {
				wants[2] = lockedmemory.ErrStopped
			}
			is(t, stops, results, err, wants...)
			if !slices.Equal(got, want) {
				t.Errorf("the function got %q; want %q", got, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // all of them, by a lock that asks no work
		s := newStoppable(t)
		s.locks.fails(errors.ErrUnsupported)
		var got []string
		results, err := s.memory.AnswerAll(t.Context(), questions("a b"), func(ctx context.Context, open []question) ([]string, error) {
			s.stopsFrom(t, s.other, open[0].ID)
			return asks(&got, "answer")(ctx, open)
		})
		is(t, "all are stopped", results, err, lockedmemory.ErrStopped, lockedmemory.ErrStopped)
		if !slices.Equal(got, []string{"a b", "b"}) {
			t.Errorf("the function got %q", got)
		}
		s.holds(t)
	})
}

func (s *stoppable) stopsFrom(t *testing.T, m *lockedmemory.LockedMemory[string, string], id string) {
	t.Helper()
	if stored, err := m.Stop(t.Context(), id, 0); stored || err != nil {
		t.Errorf("Stop of %s: %t, %v", id, stored, err)
	}
}

// The lock shows the first question alone. A Stop of it, or of the session, ends the turn, and leaves the others open.
func TestAnswerAll_O_interrupted_othersOpen(t *testing.T) {
	for _, id := range []string{"a", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			results, err := s.memory.AnswerAll(t.Context(), questions("a b"), func(ctx context.Context, open []question) ([]string, error) {
				s.stopsFrom(t, s.other, id)
				<-ctx.Done()
				return []string{"late"}, nil
			})
			is(t, "stopped", results, err, lockedmemory.ErrStopped, distlock.ErrInterrupted)
			s.holds(t)
			var got []string
			results, err = s.memory.AnswerAll(t.Context(), questions("a b"), asks(&got, "answer"))
			is(t, "repeated", results, err, lockedmemory.ErrStopped, "answer")
		})
	}
}

// Under a raised token, a closed first question does not end the turn of the others.
func TestAnswerAll_O_raisedToken(t *testing.T) {
	for name, c := range map[string]struct {
		before, during string
		want           []string
	}{
		"closed before":    {"a", "", []string{"b c"}},
		"closed meanwhile": {"", "a", []string{"a b c", "b c"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			s.locks.fails(errors.ErrUnsupported) // a Stop of a message closes it, and ends no context
			var got []string
			if c.before != "" {
				s.stops(t, c.before, 0, false)
			}
			results, err := s.memory.AnswerAll(t.Context(), questions("a b c"), func(ctx context.Context, open []question) ([]string, error) {
				if c.during != "" && len(got) == 0 {
					s.stopsFrom(t, s.other, c.during)
				} else {
					lease, _ := lockedmemory.Lease(ctx)
					must(t, fencing.RaiseToken(ctx, lease, lease.Fence()))
				}
				return asks(&got, "answer")(ctx, open)
			})
			is(t, name, results, err, lockedmemory.ErrStopped, "answer", "answer")
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: the function got %q; want %q", name, got, c.want)
			}
		})
	}
}

// In a turn, AnswerAll joins. It makes one request of the store for what Pending has returned in the turn.
func TestAnswerAll_joined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newHooked(t)
		s.puts(t, "a b")
		var got []string
		must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
			must(t, second(s.memory.Pending(ctx)))
			clear(h.calls)
			results, err := s.memory.AnswerAll(ctx, questions("a b"), asks(&got, "answer"))
			is(t, "joined", results, err, "answer", "answer")
			if len(h.calls) != 1 || h.calls["Append"] != 1 {
				t.Errorf("the store had the calls %v", h.calls)
			}
			results, err = s.memory.AnswerAll(ctx, questions("a c b"), asks(&got, "again"))
			is(t, "again", results, err, "answer", "again", "answer")
			return err
		}))
		// What Pending has returned may be decided since.
		s.puts(t, "d e f")
		must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
			must(t, second(s.memory.Pending(ctx)))
			must(t, s.memory.SaveOnce(ctx, "d", "q of d", "saved"))
			if answer, err := s.memory.Answer(ctx, "d", "q of d", reply("answer")); err != nil || !slices.Equal(answer, []string{"saved"}) {
				t.Errorf("Answer of what was stored since the list: %q, %v", answer, err)
			}
			must(t, s.memory.SaveOnce(ctx, "e", "q of e", "saved"))
			results, err := s.memory.AnswerAll(ctx, questions("e f"), asks(&got, "answer"))
			is(t, "stored since the list", results, err, "saved", "answer")
			return err
		}))
		s.pends(t, "")
	})
}

// In the turn of an Answer, an AnswerAll leaves the turn that of the message.
func TestAnswerAll_O_inAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		r := runs(t, s.other, "outer")
		var got []string
		results, err := s.other.AnswerAll(r.ctx, questions("a b"), asks(&got, "answer"))
		is(t, "inside", results, err, "answer", "answer")
		s.locks.loses = true
		s.stops(t, "outer", 0, false)
		lease, _ := lockedmemory.Lease(r.ctx)
		must(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()))
		results, err = s.other.AnswerAll(r.ctx, questions("c d"), asks(&got, "answer"))
		is(t, "after the Stop", results, err, distlock.ErrInterrupted, distlock.ErrInterrupted)
		s.isOver(t, r)
		s.holds(t, "q of a", "q of b", "answer")
	})
}

// An AnswerAll that waited for the lock through a Stop of the session closes all its questions.
func TestAnswerAll_O_ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		r := runs(t, s.other, "id")
		var waiters sync.WaitGroup
		for n, m := range []*lockedmemory.LockedMemory[string, string]{s.memory, s.other} {
			waiters.Go(func() {
				var got []string
				results, err := m.AnswerAll(t.Context(), questions(fmt.Sprintf("a%d -b%d c%d", n, n, n)), asks(&got, "answer"))
				is(t, "waited", results, err, lockedmemory.ErrStopped, lockedmemory.ErrStopped, lockedmemory.ErrStopped)
				if len(got) > 0 {
					t.Errorf("the function got %q", got)
				}
			})
		}
		time.Sleep(time.Second)
		s.stops(t, "", 0, false)
		s.isOver(t, r)
		waiters.Wait()
		for _, id := range []string{"a0", "b0", "c1"} {
			s.isStopped(t, id)
		}
		s.holds(t)
	})
}

// A superseded question is closed with the answer of the others, and without it stays open.
func TestAnswerAll_O_superseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.puts(t, "a b c")
		must(t, second(s.other.Answer(t.Context(), "b", "q of b", reply("first"))))
		var got []string
		results, err := s.memory.AnswerAll(t.Context(), questions("-a -b c"), asks(&got, "answer"))
		is(t, "superseded", results, err, lockedmemory.ErrSuperseded, "first", "answer")
		if !slices.Equal(got, []string{"c"}) {
			t.Errorf("the function got %q", got)
		}
		s.pends(t, "")
		if err := s.memory.Put(t.Context(), "a", "q of a"); !errors.Is(err, lockedmemory.ErrSuperseded) {
			t.Errorf("Put of a superseded question: %v", err)
		}
		s.holds(t, "q of b", "first", "q of c", "answer")

		results, err = s.memory.AnswerAll(t.Context(), questions("-d c -e"), asks(&got, "answer"))
		is(t, "the others are decided", results, err, distlock.ErrInterrupted, "answer", distlock.ErrInterrupted)
		results, err = s.memory.AnswerAll(t.Context(), questions("d e"), asks(&got, "later"))
		is(t, "open", results, err, "later", "later")
	})
}

// A question that Pending could not read stays open, and the others are answered.
func TestAnswerAll_O_unreadable_open(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		all := questions("-a b c -d")
		all[0].Err, all[1].Err = errInner, errBroken
		var got []string
		results, err := s.memory.AnswerAll(t.Context(), all, asks(&got, "answer"))
		is(t, "unreadable", results, err, errInner, errBroken, "answer", lockedmemory.ErrSuperseded)
		if !slices.Equal(got, []string{"c"}) {
			t.Errorf("the function got %q", got)
		}
		results, err = s.memory.AnswerAll(t.Context(), append(all[:2:2], questions("c -e")...), asks(&got, "answer"))
		is(t, "decided", results, err, errInner, errBroken, "answer", distlock.ErrInterrupted)
		results, err = s.memory.AnswerAll(t.Context(), questions("a b e"), asks(&got, "later"))
		is(t, "read", results, err, "later", "later", "later")
	})
}

// A Stop of the session closes what is pending at its ask, and what comes later stays.
func TestStop_O_session_pending(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			s.puts(t, "a b")
			s.sessions.before = func(storedriver.CloseRequest) error {
				s.sessions.before = nil
				s.puts(t, "later")
				return nil
			}
			s.stops(t, "", grace, false)
			s.pends(t, "later")
			for _, id := range []string{"a", "b"} {
				if err := s.other.Put(t.Context(), id, "q"); !errors.Is(err, lockedmemory.ErrStopped) {
					t.Errorf("Put of %s after the Stop: %v", id, err)
				}
				s.isStopped(t, id)
			}
			s.stops(t, "other", grace, false)
			s.pends(t, "later")
			s.stops(t, "later", grace, false)
			s.pends(t, "")
		})
	}
}

// In the grace of a Stop of the session, the turn may answer what is pending. The rest is closed after it.
func TestStop_O_session_pendingInTheGrace(t *testing.T) {
	for name, answered := range map[string]bool{"it answers": true, "it fails": false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			s.puts(t, "a b c")
			began, ended := make(chan bool), make(chan bool)
			go func() {
				defer close(ended)
				results, err := s.other.AnswerAll(t.Context(), questions("a b"), func(ctx context.Context, _ []question) ([]string, error) {
					close(began)
					if <-ctx.Done(); !answered {
						return nil, errInner
					}
					time.Sleep(300 * time.Millisecond)
					return []string{"answer"}, nil
				})
				if answered {
					is(t, name, results, err, "answer", "answer")
				} else {
					for _, r := range results { // the Stop goes on
						if !errors.Is(r.Err, distlock.ErrInterrupted) && !errors.Is(r.Err, lockedmemory.ErrStopped) {
							t.Errorf("%s: %v", name, r.Err)
						}
					}
				}
			}()
			<-began
			s.stops(t, "", time.Second, answered)
			<-ended
			s.pends(t, "")
			s.isStopped(t, "c")
			if answered {
				s.holds(t, "q of a", "q of b", "answer")
			} else {
				s.isStopped(t, "a")
				s.isStopped(t, "b")
				s.holds(t)
			}
		})
	}
}

// A Stop of the session that cannot read or close what is pending fails. A repetition closes it.
func TestStop_session_pendingFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*stoppable, *hooked)
		want error
	}{
		"the list": {func(_ *stoppable, h *hooked) {
			h.list = func() error { h.list = nil; return fmt.Errorf("%w: down", driver.ErrNotDone) }
		}, distlock.ErrUnavailable},
		"a close": {func(s *stoppable, _ *hooked) {
			s.sessions.before = func(c storedriver.CloseRequest) error {
				if c.ID == storedriver.HashID("a") {
					s.sessions.before = nil
					return errors.New("connection reset")
				}
				return nil
			}
		}, distlock.ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, h := newHooked(t)
			s.puts(t, "a b")
			c.fail(s, h)
			if stored, err := s.memory.Stop(t.Context(), "", 0); stored || !errors.Is(err, c.want) {
				t.Errorf("%s: %t, %v; want %v", name, stored, err, c.want)
			}
			s.pends(t, "a b")
			s.stops(t, "", 0, false)
			s.pends(t, "")
			s.isStopped(t, "b")
		})
	}
}
