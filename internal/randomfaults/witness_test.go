package randomfaults

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/tracing"
)

// nameShown finds the names of locks and sessions in a text: they may be people's.
var nameShown = regexp.MustCompile(`e\d+/(hot|talk|notes|own)-|(foreign|line)/\d`)

// enoughShown is how many a process tells of.
const enoughShown = 5

// witness looks at all that the library tells others than its caller: errors, which end in logs, log lines and spans.
type witness struct {
	tell     func(*said)
	texts    atomic.Int64 // that it has looked at, and not counted yet
	shown    atomic.Int64 // of them with a name
	provider *sdktrace.TracerProvider
	traces   *tracing.Tracing
	logger   *slog.Logger
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

func (w *witness) err(err error) {
	if err != nil {
		w.look("an error", fmt.Sprintf("%+v", err))
	}
}

func (w *witness) Write(line []byte) (int, error) {
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
	for _, key := range []string{hotKey(7, 0), talkOf(7, 1), noteOf(7, 2)} {
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
	if w.err(distlock.ErrUnavailable); len(shown) != 12 || w.texts.Load() != 13 {
		t.Errorf("%d of %d texts show names", len(shown), w.texts.Load())
	}
}
