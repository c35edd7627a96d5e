package belugamemory

import (
	"context"
	"errors"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

// open makes a memory as an application does.
func open(t testing.TB, url string, opts map[string]any) *Memory {
	t.Helper()
	m, err := memory.New(Name, config.ProviderConfig{BaseURL: url, Options: opts})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = m.(*Memory).Close(ctx)
	})
	return m.(*Memory)
}

// inSession returns a context of a session.
func inSession(t testing.TB, id string) context.Context { return core.WithSessionID(t.Context(), id) }

func localLocker(t testing.TB, opts *distlock.Options) *distlock.Locker {
	t.Helper()
	locker, err := memlock.New(opts)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

// wrap makes a memory with a Locker of this process.
func wrap(t testing.TB, inner memory.Memory, key lockedmemory.KeyFunc, opts *lockedmemory.Options) *Memory {
	t.Helper()
	m, err := Wrap(inner, localLocker(t, nil), key, opts)
	must(t, err)
	return m
}

// ofOne makes a memory of one conversation.
func ofOne(t testing.TB, inner memory.Memory) *Memory {
	t.Helper()
	return wrap(t, inner, lockedmemory.FixedKey("s"), nil)
}

// refused makes a configuration that New refuses as wrong. It returns the text of the error.
func refused(t testing.TB, cfg config.ProviderConfig) string {
	t.Helper()
	_, err := New(cfg)
	mustHaveCode(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	if err == nil || core.IsRetryable(err) {
		t.Fatalf("%v", err)
	}
	return err.Error()
}

// contains checks that a text has all parts.
func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in: %s", part, text)
		}
	}
}

func save(t testing.TB, ctx context.Context, m memory.Memory, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := m.Save(ctx, schema.NewHumanMessage("q "+text), schema.NewAIMessage("a "+text)); err != nil {
			t.Fatal("Save:", err)
		}
	}
}

// holds checks the result of Load, as "q 1|a 1|…".
func holds(t testing.TB, ctx context.Context, m memory.Memory, want string) {
	t.Helper()
	messages, err := m.Load(ctx, "")
	if got := texts(messages); got != want || err != nil {
		t.Errorf("Load: %q, %v; want %q", got, err, want)
	}
}

func texts(messages []schema.Message) string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.(interface{ Text() string }).Text()
	}
	return strings.Join(all, "|")
}

// mustHaveCode checks the outermost error, as an application of Beluga does.
func mustHaveCode(t testing.TB, err error, code core.ErrorCode, sentinel error) {
	t.Helper()
	var coded *core.Error
	switch {
	case !errors.As(err, &coded):
		t.Errorf("no error of package core: %v", err)
	case coded.Code != code:
		t.Errorf("code %s, want %s: %v", coded.Code, code, err)
	case !errors.Is(err, sentinel):
		t.Errorf("does not match %q: %v", sentinel, err)
	case coded.Op == "" || !strings.HasPrefix(coded.Op, "belugamemory."):
		t.Errorf("Op is %q", coded.Op)
	}
}

// hold locks m's session until the returned function is called.
func hold(t testing.TB, ctx context.Context, m *Memory) (release func()) {
	t.Helper()
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { ended <- m.Turn(ctx, func(context.Context) error { close(began); <-end; return nil }) }()
	select {
	case <-began:
	case err := <-ended:
		t.Fatal("Turn:", err)
	}
	release = sync.OnceFunc(func() { close(end); <-ended })
	t.Cleanup(release)
	return release
}

// failing is a memory whose operations fail with err.
type failing struct{ err error }

func (f failing) Save(context.Context, schema.Message, schema.Message) error     { return f.err }
func (f failing) Load(context.Context, string) ([]schema.Message, error)         { return nil, f.err }
func (f failing) Search(context.Context, string, int) ([]schema.Document, error) { return nil, f.err }
func (f failing) Clear(context.Context) error                                    { return f.err }

// list is a memory.MessageStore of one conversation without a guard: the race detector reports
// concurrent calls.
type list struct{ messages []schema.Message }

func (l *list) Append(_ context.Context, m schema.Message) error {
	l.messages = append(l.messages, m)
	return nil
}
func (l *list) Search(context.Context, string, int) ([]schema.Message, error) { return nil, nil }
func (l *list) All(context.Context) ([]schema.Message, error)                 { return l.messages, nil }
func (l *list) Clear(context.Context) error                                   { l.messages = nil; return nil }

func second[T, U any](_ T, value U) U { return value }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait for servers, so more tests than processors run at once.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}
