package campaign

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/tracing"
)

// nameShown finds the names of locks and sessions in a text: they may be people's.
var nameShown = regexp.MustCompile(`e\d+/(draft|(hot|talk|notes|own)-)|(foreign|hooks|line)/\d|expiry-\d`)

// enoughShown is how many a process tells of.
const enoughShown = 5

// brokenHooks counts the faults in which a hook was called.
const brokenHooks = "broken hooks"

// hookFault lets every hook block until a time, or panic before it.
type hookFault struct {
	panics bool
	until  int64
	struck sync.Once
}

// witness is the Observer of a worker, and writes its log. It looks at all that the library shows
// others than its caller: errors, which end in logs, log lines and spans.
type witness struct {
	tell     func(*said)
	texts    atomic.Int64 // that it has looked at, and not counted yet
	shown    atomic.Int64 // of them with a name
	provider *sdktrace.TracerProvider
	traces   *tracing.Tracing
	logger   *slog.Logger
	fault    atomic.Pointer[hookFault] // nil: the hooks work
}

// newWitness makes the witness of a process.
func newWitness(broken string, tell func(*said)) (*witness, error) {
	w := &witness{tell: tell}
	w.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w))
	mode := distlock.KeyHashed
	if broken == outspoken {
		mode = distlock.KeyRaw
	}
	var err error
	w.traces, err = tracing.New(tracing.WithKeyAttribute(mode), tracing.WithTracerProvider(w.provider))
	w.logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return w, err
}

func (w *witness) look(what, text string) {
	w.texts.Add(1)
	if nameShown.MatchString(text) && w.shown.Add(1) <= enoughShown {
		w.tell(&said{What: sayShown, Text: fmt.Sprintf("%s shows a name: %s", what, text)})
	}
}

// strike blocks or panics in a hook, while there is a fault.
func (w *witness) strike() {
	f := w.fault.Load()
	if f == nil || now() >= f.until {
		return
	}
	f.struck.Do(func() { w.tell(&said{What: sayAlive, Counts: counts{brokenHooks: 1}}) })
	if f.panics {
		panic("a hook of the application is broken")
	}
	time.Sleep(time.Duration(f.until - now()))
}

func (w *witness) Start(ctx context.Context, op *distlock.Operation) context.Context {
	w.strike()
	return w.traces.Start(ctx, op)
}

func (w *witness) End(ctx context.Context, op *distlock.Operation) {
	w.strike()
	w.traces.End(ctx, op)
}

func (w *witness) err(err error) {
	if err != nil {
		w.look("an error", fmt.Sprintf("%+v", err))
	}
}

func (w *witness) Write(line []byte) (int, error) {
	w.strike()
	w.look("the log", string(line))
	return len(line), nil
}

// Printf takes the log of go-redis.
func (w *witness) Printf(_ context.Context, format string, args ...any) {
	w.look("the client's log", fmt.Sprintf(format, args...))
}

func (w *witness) OnEnd(s sdktrace.ReadOnlySpan) {
	w.look("a span", fmt.Sprint(s.Name(), s.Attributes(), s.Status(), s.Events(), s.Links()))
}

func (*witness) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*witness) Shutdown(context.Context) error                  { return nil }
func (*witness) ForceFlush(context.Context) error                { return nil }

// All that leaves the library is looked at, and nothing else is taken for a name.
func TestWitness(t *testing.T) {
	var shown []string
	w, err := newWitness("", func(s *said) { shown = append(shown, s.Text) })
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{hotKey(7, 0), talkOf(7, 1), noteOf(7, 2), draftOf(7), "expiry-3"}
	for _, key := range keys {
		w.shown.Store(0)
		before := len(shown)
		w.err(fmt.Errorf("of %s", key))
		w.logger.Info("text", "of", key)
		w.Printf(t.Context(), "of %s", key)
		_, span := w.provider.Tracer("").Start(t.Context(), key)
		span.End()
		if len(shown) != before+4 {
			t.Errorf("%s: told of %q", key, shown[before:])
		}
	}
	if w.err(distlock.ErrUnavailable); len(shown) != 4*len(keys) || w.texts.Load() != int64(len(shown)+1) {
		t.Errorf("%d of %d texts show names", len(shown), w.texts.Load())
	}
}
