package privacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/tracing"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

// mark is part of everything that is personal or secret. It survives in any case, and is no part of
// anything else.
const (
	mark     = "Qx7mark"
	session  = mark + "-session"
	text     = mark + "-text"
	turnID   = mark + "-turn"
	password = mark + "-password"
)

// note is a message: texts, a number, and a time, which encoding/json treats differently when they
// are wrong.
type note struct {
	Text string
	N    int8
	At   time.Time
}

// witness sees what leaves the process.
type witness struct {
	t     *testing.T
	spans *tracetest.InMemoryExporter
	meter *sdkmetric.ManualReader
	opts  func() *distlock.Options

	mu     sync.Mutex
	log    bytes.Buffer
	errors int
}

func (w *witness) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// Printf takes the log of go-redis.
func (w *witness) Printf(_ context.Context, format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
}

func newWitness(t *testing.T) *witness {
	w := &witness{t: t, spans: tracetest.NewInMemoryExporter(), meter: sdkmetric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.meter))
	observer, err := tracing.New(tracing.WithTracerProvider(provider), tracing.WithMeterProvider(meters))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(tracing.LogHandler(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
	w.opts = func() *distlock.Options {
		return &distlock.Options{TTL: 500 * time.Millisecond, Wait: 60 * time.Millisecond, Observer: observer, Logger: logger}
	}
	redis.SetLogger(w)
	return w
}

// patient has the scene's Lockers keep their leases, and wait for so long, also on a slow machine;
// they renew as often.
func (w *witness) patient(wait time.Duration) {
	before := w.opts
	w.opts = func() *distlock.Options {
		o := before()
		o.TTL, o.Wait = 10*time.Second, wait
		return pace.Renew(o, 150*time.Millisecond)
	}
	w.t.Cleanup(func() { w.opts = before })
}

// saw takes an error, which has to be of a kind, or the scene has not failed as it should.
func (w *witness) saw(what string, err error, sentinels ...error) {
	w.t.Helper()
	for _, sentinel := range sentinels {
		if !errors.Is(err, sentinel) {
			w.t.Errorf("%s: %v; want %v", what, err, sentinel)
		}
	}
	if err == nil {
		w.t.Errorf("%s: no error", what)
		return
	}
	w.errors++
	for _, shown := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err)} {
		w.clean(what, shown)
	}
}

// take takes an error, if there is one.
func (w *witness) take(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.saw(what, err)
	}
}

func (w *witness) clean(what, shown string) {
	w.t.Helper()
	if strings.Contains(strings.ToLower(shown), strings.ToLower(mark)) {
		w.t.Errorf("%s shows what it must not: %s", what, shown)
	}
}

// verdict searches the log lines, spans and metrics.
func (w *witness) verdict() {
	w.t.Helper()
	w.mu.Lock()
	log := w.log.String()
	w.mu.Unlock()
	for line := range strings.Lines(log) {
		w.clean("the log", line)
	}
	if !strings.Contains(log, "distlock: ") {
		w.t.Errorf("nothing of the Locker was logged: %q", log)
	}
	if !strings.Contains(log, " trace_id=") {
		w.t.Errorf("no line of the log has a trace: %q", log)
	}
	w.measured()
	spans := w.spans.GetSpans()
	var events, links, failed int
	for _, span := range spans {
		encoded, err := json.Marshal(struct {
			Name, Status, Attributes, Events, Links, State any
		}{span.Name, span.Status, span.Attributes, span.Events, span.Links, span.SpanContext})
		if err != nil {
			w.t.Fatal(err)
		}
		w.clean("the span "+span.Name, string(encoded)+fmt.Sprintf("%v", span))
		events, links = events+len(span.Events), links+len(span.Links)
		if span.Status.Description != "" {
			failed++
		}
	}
	if len(spans) < 20 || events == 0 || links == 0 || failed == 0 {
		w.t.Errorf("%d spans, %d events, %d links, %d with a status: this shows nothing", len(spans), events, links, failed)
	}
	w.t.Logf("%d errors, %d lines of log, %d spans", w.errors, strings.Count(log, "\n"), len(spans))
}

// measured searches the metrics, with their attributes and exemplars.
func (w *witness) measured() {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.meter.Collect(context.Background(), &all); err != nil {
		w.t.Fatal(err)
	}
	var found []string
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			encoded, err := json.Marshal(metric)
			if err != nil {
				w.t.Fatal(err)
			}
			w.clean("the metric "+metric.Name, string(encoded)+fmt.Sprintf("%+v", metric))
			found = append(found, string(encoded))
		}
	}
	shown := strings.Join(found, "\n")
	if len(found) != 9 || !strings.Contains(shown, `"SpanID"`) || !strings.Contains(shown, `"distlock.outcome"`) {
		w.t.Errorf("%d metrics: this shows nothing: %s", len(found), shown)
	}
}

// instance is what one process has.
type instance struct {
	client *redis.Client
	locker *distlock.Locker
	store  *sessionstore.Store[note, note]
	memory *lockedmemory.LockedMemory[note, note]
}

// open opens one as a user of the server.
func (w *witness) open(server *servers.Redis, user string, with ...func(*redis.Options)) *instance {
	w.t.Helper()
	return w.over(redisOptions(w.t, "redis://"+user+":"+password+"@"+server.Addr()), with...)
}

func redisOptions(t *testing.T, url string) *redis.Options {
	client, err := redislock.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	options := *client.(*redis.Client).Options()
	return &options
}

func (w *witness) over(options *redis.Options, with ...func(*redis.Options)) *instance {
	w.t.Helper()
	options.MinRetryBackoff, options.MaxRetryBackoff, options.ReadTimeout = time.Millisecond, time.Millisecond, 200*time.Millisecond
	options.DialerRetries, options.DialerRetryTimeout = 1, time.Millisecond
	for _, change := range with {
		change(options)
	}
	in := &instance{client: redis.NewClient(options)}
	w.t.Cleanup(func() { _ = in.client.Close() })
	var err error
	if in.locker, err = redislock.New(in.client, w.opts()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = in.locker.Close(context.Background()) })
	w.memory(in, &sessionstore.Options{MaxMessage: 1 << 10}, nil)
	return in
}

func (w *witness) memory(in *instance, opts *sessionstore.Options, lock *lockedmemory.Options) {
	w.t.Helper()
	key := lockedmemory.FixedKey(session)
	var err error
	if in.store, err = redisstore.New(in.client, key, sessionstore.JSON[note]{}, nil, opts); err != nil {
		w.t.Fatal(err)
	}
	if lock == nil {
		lock = new(lockedmemory.Options)
	}
	lock.Wait = fencing.Options(in.locker).Wait
	if in.memory, err = lockedmemory.New(in.store, in.locker, key, lock); err != nil {
		w.t.Fatal(err)
	}
}

// said are messages.
func said(n int8) note { return note{Text: text, N: n, At: time.Unix(0, 0).UTC()} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, server *servers.Redis, args ...string) {
	t.Helper()
	_, err := server.Do(args...)
	must(t, err)
}

// garbler is a server that answers scripts and reads with a line that is no reply.
func garbler(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				buffer := make([]byte, 64<<10)
				for n, err := conn.Read(buffer); err == nil; n, err = conn.Read(buffer) {
					asked, reply := strings.ToLower(string(buffer[:n])), "+OK\r\n"
					switch {
					case strings.Contains(asked, "evalsha"), strings.Contains(asked, "xrange"):
						reply = "?" + session + " " + text + "\r\n"
					case strings.Contains(asked, "hello"):
						reply = "-ERR unknown command\r\n"
					}
					_, _ = conn.Write([]byte(strings.Repeat(reply, strings.Count(asked, "*"))))
				}
			})
		}
	})
	return listener.Addr().String()
}
