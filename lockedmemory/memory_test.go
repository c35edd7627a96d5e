package lockedmemory_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const session = "secret-session-id"

var (
	errInner  = errors.New("the inner memory failed")
	errBroken = errors.New("the wire is broken")
)

// history is an inner memory of one session whose Save is two appends with a pause between them.
type history struct {
	mu       sync.Mutex
	messages []string
	pause    time.Duration
	fail     error
	seen     []context.Context
}

func (h *history) append(message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, message)
}

func (h *history) note(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, ctx)
	return h.fail
}

func (h *history) Save(ctx context.Context, input, output string) error {
	if err := h.note(ctx); err != nil {
		return err
	}
	h.append(input)
	if h.pause > 0 {
		select {
		case <-time.After(h.pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	h.append(output)
	return nil
}

func (h *history) Load(ctx context.Context, query string) ([]string, error) {
	if err := h.note(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.messages), nil
}

func (h *history) Search(ctx context.Context, query string, k int) ([]int, error) {
	if err := h.note(ctx); err != nil {
		return nil, err
	}
	return []int{len(query), k}, nil
}

func (h *history) Clear(ctx context.Context) error {
	if err := h.note(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = nil
	return nil
}

// savesName saves the n-th letter as a pair, for isWhole.
func savesName(ctx context.Context, t *testing.T, m locked, n int) {
	name := string(rune('a' + n))
	if err := m.Save(ctx, name, strings.ToUpper(name)); err != nil {
		t.Errorf("Save: %v", err)
	}
}

func (h *history) isWhole(t *testing.T, pairs int) {
	t.Helper()
	for pair := range slices.Chunk(h.messages, 2) {
		if pairs--; len(pair) < 2 || strings.ToUpper(pair[0]) != pair[1] {
			t.Fatalf("torn: %q", h.messages)
		}
	}
	if pairs != 0 {
		t.Fatalf("%d pairs are missing: %q", pairs, h.messages)
	}
}

var _ lockedmemory.Memory[string, int] = locked(nil)

// setup is two locked memories, as two instances have them, over one history and one lock service.
type setup struct {
	inner  *history
	faults *drivertest.Faults
	a, b   locked
	locker *distlock.Locker // of a
	// observer is that of both Lockers, unless the options have one.
	observer *ops
}

func newSetup(t *testing.T, opts distlock.Options, memOpts *lockedmemory.Options) *setup {
	t.Helper()
	s := &setup{inner: &history{}, faults: drivertest.NewFaults(memlock.NewDriver()), observer: &ops{}}
	if opts.Observer == nil {
		opts.Observer = s.observer
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, m := range []*locked{&s.b, &s.a} {
		var err error
		if s.locker, err = distlock.New(s.faults, &opts); err != nil {
			t.Fatal(err)
		}
		closing := s.locker
		t.Cleanup(func() { _ = closing.Close(context.Background()) })
		if *m, err = lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey(session), memOpts); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

type locked = *lockedmemory.LockedMemory[string, int]

// of is a memory of another session, or another one of the same, over the inner memory and the Locker of a.
func (s *setup) of(t *testing.T, key string, opts *lockedmemory.Options) locked {
	t.Helper()
	m, err := lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey(key), opts)
	must(t, err)
	return m
}

// calls are the operations that take the lock, with a context.
func calls(t *testing.T, m locked) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Save":  func(ctx context.Context) error { return m.Save(ctx, "q", "a") },
		"Clear": m.Clear,
		"Turn": func(ctx context.Context) error {
			return m.Turn(ctx, func(context.Context) error { t.Error("ran"); return nil })
		},
	}
}

func TestSave_S1_keepsPairsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: -1}, nil)
		s.inner.pause = time.Millisecond
		var wg sync.WaitGroup
		for i := range 20 {
			m := []locked{s.a, s.b}[i%2]
			wg.Go(func() { savesName(t.Context(), t, m, i) })
		}
		wg.Wait()
		s.inner.isWhole(t, 20)
	})
}

func TestSave_C_nothingIsWrittenWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: time.Second}, nil)
		down(s.faults)
		for _, m := range []locked{s.a, s.of(t, session, refuse)} {
			for call, do := range calls(t, m) {
				if err := do(t.Context()); !errors.Is(err, distlock.ErrUnavailable) || strings.Contains(err.Error(), session) {
					t.Errorf("%s: %v", call, err)
				}
			}
		}
		s.faults.Inject(nil)
		must(t, second(s.locker.Acquire(t.Context(), session)))
		for call, err := range map[string]error{"Save": s.a.Save(t.Context(), "q", "a"), "Clear": s.b.Clear(t.Context())} {
			if !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("%s of a busy session: %v", call, err)
			}
		}
		if len(s.inner.seen) != 0 {
			t.Error("the inner memory was called")
		}
	})
}

func TestLoadAndSearch_takeNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		s.inner.messages = []string{"q", "a"}
		must(t, second(s.locker.Acquire(t.Context(), session)))
		if got, err := s.b.Load(t.Context(), ""); err != nil || len(got) != 2 {
			t.Errorf("Load: %q, %v", got, err)
		}
		if got, err := s.b.Search(t.Context(), "four", 7); err != nil || !slices.Equal(got, []int{4, 7}) {
			t.Errorf("Search: %v, %v", got, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSession_mustBeKnown(t *testing.T) {
	locker, err := memlock.New(nil)
	must(t, err)
	defer locker.Close(t.Context())
	inner := &history{}
	for name, test := range map[string]struct {
		key  lockedmemory.KeyFunc
		want string
	}{
		"empty": {lockedmemory.FixedKey(""), "put its ID into the context"},
		"error": {func(context.Context) (string, error) { return "", errInner }, errInner.Error()},
		"bad":   {lockedmemory.FixedKey("a\x00b"), "control character"},
	} {
		m, err := lockedmemory.New(inner, locker, test.key, nil)
		must(t, err)
		for call, do := range calls(t, m) {
			if err := do(t.Context()); !errors.Is(err, distlock.ErrInvalidKey) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v, want ErrInvalidKey that says %q", name, call, err, test.want)
			}
		}
	}
	if len(inner.seen) != 0 {
		t.Error("the inner memory was called")
	}
	m, err := lockedmemory.New(inner, locker, func(context.Context) (string, error) { return "", errInner }, nil)
	must(t, err)
	if _, err := m.Load(t.Context(), ""); err != nil { // may be of all sessions
		t.Errorf("Load: %v", err)
	}
}

func TestNew_refusesBadOptions(t *testing.T) {
	locker, err := memlock.New(nil)
	must(t, err)
	defer locker.Close(t.Context())
	var none *history
	key := lockedmemory.FixedKey(session)
	for text, err := range map[string]error{
		"the inner memory is nil": second(lockedmemory.New[string, int](nil, locker, key, nil)),
		"memory is nil":           second(lockedmemory.New(none, locker, key, nil)),
		"Locker is nil":           second(lockedmemory.New(&history{}, nil, key, nil)),
		"KeyFunc is nil":          second(lockedmemory.New(&history{}, locker, nil, nil)),
		"use Queue or Refuse":     second(lockedmemory.New(&history{}, locker, key, &lockedmemory.Options{Busy: lockedmemory.Refuse + 1})),
		"Busy is -1":              second(lockedmemory.New(&history{}, locker, key, &lockedmemory.Options{Busy: -1})),
	} {
		if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want ErrInvalidOption that says %q", err, text)
		}
	}
}

func TestSessionKey_isTheInnermostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		m, err := lockedmemory.New(s.inner, s.locker, lockedmemory.SessionKey, nil)
		must(t, err)
		if err := m.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrInvalidKey) {
			t.Errorf("Save without a session: %v", err)
		}
		key := func(ctx context.Context) (key string) {
			must(t, m.Turn(ctx, func(ctx context.Context) error {
				lease, _ := lockedmemory.Lease(ctx)
				key = lease.Key()
				return nil
			}))
			return key
		}
		one := lockedmemory.WithSession(t.Context(), "one")
		if got := key(one); got != "one" {
			t.Errorf("the key is %q", got)
		}
		if got := key(lockedmemory.WithSession(one, "other")); got != "other" {
			t.Errorf("the key of a session within a session is %q", got)
		}
	})
}
