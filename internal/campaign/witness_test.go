package campaign

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/tracing"
)

// nameShown finds the names of locks and sessions in a text: they may be people's.
var nameShown = regexp.MustCompile(`e\d+/(hot|talk|notes|own)-`)

// enoughShown is how many a process tells of.
const enoughShown = 5

// witness looks at all that the library tells others than its caller: errors, which end in logs, log lines and spans.
type witness struct {
	tell   func(*said)
	texts  atomic.Int64 // that it has looked at, and not counted yet
	shown  atomic.Int64 // of them with a name
	traces *tracing.Tracing
	logger *slog.Logger
}

// newWitness makes the witness of a process.
func newWitness(broken string, tell func(*said)) (*witness, error) {
	w := &witness{tell: tell}
	mode := tracing.KeyHashed
	if broken == outspoken {
		mode = tracing.KeyRaw
	}
	var err error
	w.traces, err = tracing.New(tracing.WithKeyAttribute(mode),
		tracing.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w))))
	w.logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	redis.SetLogger(w)
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
