package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// instance is what one process of an application has: a client for its sessions, with a Locker over
// it, and another Locker over a client that the store does not know, so that for the store the lock
// lives elsewhere.
type instance struct {
	client        client
	beside, apart *distlock.Locker
	keep          *sessionstore.Retention
}

// instance makes one that the test closes.
func (s *service) instance(tb testing.TB, with ...setting) *instance {
	tb.Helper()
	client := s.client(tb, with...)
	return &instance{client: client, beside: locker(tb, client, with...), apart: s.locker(tb, with...)}
}

// session is one as an instance sees it.
type session struct {
	*lockedmemory.LockedMemory[string, string]
	store *sessionstore.Store[string, string] // the inner one, for who goes past all checks of the lease
	key   string
	apart bool
}

// session opens one whose lock is beside it, or apart from it.
func (in *instance) session(key string, apart bool) *session {
	locker := in.beside
	if apart {
		locker = in.apart
	}
	named := lockedmemory.FixedKey(key)
	var store *sessionstore.Store[string, string]
	var err error
	if in.client.postgres == nil {
		store, err = redisstore.New(in.client.redis, named, codec{}, in.keep, nil)
	} else {
		var opts pgstore.Options
		if in.keep != nil {
			opts.Retention = *in.keep
		}
		store, err = pgstore.New(in.client.postgres, named, codec{}, &opts)
	}
	if err != nil {
		panic(err) // it does no I/O
	}
	memory, err := lockedmemory.New(store, locker, named, nil)
	if err != nil {
		panic(err)
	}
	return &session{LockedMemory: memory, store: store, key: key, apart: apart}
}

// logKey is where Redis keeps the session of key, which needs no escaping.
func logKey(key string) string { return "session:{" + key + "}:log" }

// turn is one that is under way until the test ends it.
type turn struct {
	*session
	ctx    context.Context
	lease  *distlock.Lease
	finish func()
	done   chan error
}

// begin returns when the turn holds its session.
func (s *session) begin(tb testing.TB) *turn {
	tb.Helper()
	began, finish := make(chan context.Context), make(chan struct{})
	t := &turn{session: s, finish: sync.OnceFunc(func() { close(finish) }), done: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	go func() {
		defer cancel()
		t.done <- s.Turn(ctx, func(ctx context.Context) error {
			began <- ctx
			<-finish
			return nil
		})
	}()
	tb.Cleanup(t.finish)
	select {
	case t.ctx = <-began:
	case err := <-t.done:
		tb.Fatalf("the turn did not begin: %v", err)
	}
	t.lease, _ = lockedmemory.Lease(t.ctx)
	return t
}

// end returns the error of Turn.
func (t *turn) end() error {
	t.finish()
	return <-t.done
}

func (t *turn) mustEnd(tb testing.TB) {
	tb.Helper()
	if err := t.end(); err != nil {
		tb.Errorf("Turn: %v", err)
	}
}

// unchecked is the turn's context for a write to the store itself: neither its cancellation nor a
// check of the lease stands before it.
func (t *turn) unchecked() context.Context { return context.WithoutCancel(t.ctx) }

// saveUnchecked saves at once, whatever became of the lease.
func (t *turn) saveUnchecked(text string) error {
	return t.store.Save(t.unchecked(), text, reply(text))
}

// save saves an exchange, which text identifies.
func (s *session) save(ctx context.Context, text string) error {
	return s.Save(ctx, text, reply(text))
}

// saveOnce saves an exchange under an ID.
func (s *session) saveOnce(ctx context.Context, id, text string) error {
	return s.SaveOnce(ctx, id, text, reply(text))
}

func reply(text string) string { return "re: " + text }

// book is what the callers of a session were told, and so what must be in it.
type book struct {
	saved   []string // acknowledged
	unknown []string // may be there or not
}

// note takes down what the caller of a save was told, which it returns.
func (b *book) note(text string, err error) error {
	switch {
	case err == nil:
		b.saved = append(b.saved, text)
	case !refused(err):
		b.unknown = append(b.unknown, text)
	}
	return err
}

func (b *book) mustSave(t *testing.T, ctx context.Context, s *session, text string) {
	t.Helper()
	if err := b.note(text, s.save(ctx, text)); err != nil {
		t.Fatalf("%s: %v", s.key, err)
	}
}

// refused reports whether an error says that nothing was written.
func refused(err error) bool {
	var stale *sessionstore.StaleError
	for _, sentinel := range []error{sessionstore.ErrIDConflict, lockedmemory.ErrInvalidID, sessionstore.ErrTooLarge, distlock.ErrNotAcquired} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return errors.As(err, &stale)
}

// check compares a history, each exchange by its text: nothing that was acknowledged is lost,
// doubled, or out of order, and nothing is there that was refused.
func (b *book) check(tb testing.TB, history []string) {
	tb.Helper()
	left := slices.Clone(b.unknown)
	known := slices.DeleteFunc(slices.Clone(history), func(text string) bool {
		i := slices.Index(left, text)
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	})
	if !slices.Equal(known, b.saved) {
		tb.Errorf("the session has %q, without the unknown outcomes %q; acknowledged were %q", known, b.unknown, b.saved)
	}
}

// forget allows that the server has lost the last acknowledged exchanges, but none of the first
// kept: a prefix is left. It returns the number of lost ones.
func (b *book) forget(tb testing.TB, history []string, kept int) int {
	tb.Helper()
	if n := len(history); n < kept || n > len(b.saved) || !slices.Equal(history, b.saved[:n]) {
		tb.Fatalf("the server has retained %q of %q, want the first %d at least", history, b.saved, kept)
	}
	gone := len(b.saved) - len(history)
	b.saved, b.unknown = slices.Clone(history), nil
	return gone
}

// history is what Load returns, each exchange by its text; both messages of one stand together.
func (s *session) history(tb testing.TB, ctx context.Context) []string {
	tb.Helper()
	messages, err := s.Load(ctx, "")
	if err != nil {
		tb.Fatalf("Load: %v", err)
	}
	return exchanges(tb, messages)
}

func exchanges(tb testing.TB, messages []string) []string {
	tb.Helper()
	var texts []string
	for pair := range slices.Chunk(messages, 2) {
		if len(pair) != 2 || pair[1] != reply(pair[0]) {
			tb.Fatalf("torn: %.200q", messages)
		}
		texts = append(texts, pair[0])
	}
	return texts
}

// stale checks that the store itself has refused an access, and has named both tokens. A mark of 0
// is one that it cannot know.
func stale(tb testing.TB, what string, err error, fence, mark int64) {
	tb.Helper()
	var refusal *sessionstore.StaleError
	if !errors.As(err, &refusal) || !errors.Is(err, distlock.ErrLost) || refusal.Fence != fence || refusal.MarkToken != mark {
		tb.Errorf("%s: %v; want the refusal of %d, the store having seen %d", what, err, fence, mark)
		return
	}
	for _, token := range []int64{fence, mark} {
		if token != 0 && !strings.Contains(err.Error(), fmt.Sprint(token)) {
			tb.Errorf("%s: %v; it does not name %d", what, err, token)
		}
	}
}

// twoNamespaces has two instances share a session, but no lock: the later turn is the one that
// saves.
func twoNamespaces(t *testing.T, s *service) {
	ours := s.instance(t, withTTL(time.Minute))
	theirs := s.instance(t, withTTL(time.Minute), ofLock(func(o *distlock.Options) { o.Namespace = "another" }))
	for _, apart := range []bool{false, true} {
		b := new(book)
		earlier := ours.session(fmt.Sprint("twoNamespaces-", apart), apart).begin(t)
		b.mustSave(t, earlier.ctx, earlier.session, "earlier")
		later := theirs.session(earlier.key, apart).begin(t)
		later.history(t, later.ctx)
		err := b.note("late", earlier.save(earlier.ctx, "late"))
		if stale(t, "Save", err, earlier.lease.Fence(), later.lease.Fence()); err == nil || !strings.Contains(err.Error(), "compare Namespace and server") {
			t.Errorf("apart %t: %v; it does not say what to compare", apart, err)
		}
		b.mustSave(t, later.ctx, later.session, "later")
		later.mustEnd(t)
		_ = earlier.end()
		b.check(t, later.history(t, t.Context()))
	}
}

// absent checks that Redis has nothing of a session.
func (s *service) absent(tb testing.TB, key string) {
	tb.Helper()
	if s.mustAsk(tb, sessionExists, key) != "0" {
		tb.Errorf("%s: there is a session", key)
	}
}

// codec keeps texts as they are, behind a byte by which it knows its own.
type codec struct{}

func (codec) Encode(text string) ([]byte, error) { return []byte("." + text), nil }

func (codec) Decode(b []byte) (string, error) {
	if len(b) == 0 || b[0] != '.' {
		return "", errors.New("it does not begin with a dot")
	}
	return string(b[1:]), nil
}

func (codec) Text(text string) string     { return text }
func (codec) Document(text string) string { return text }
