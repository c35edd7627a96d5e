// Command service is one instance of a chat service, to copy. Any instance answers any message.
//
//	go run ./examples/service                                # alone, on nothing installed
//	go run ./examples/service -lock redis://localhost:6379    # one of several
//	curl -N localhost:8080/conversations/42 -H 'X-Tenant: acme' -H 'Idempotency-Key: 1' -d 'What time is it?'
//
// The answer is a stream of server-sent events. With OTEL_EXPORTER_OTLP_ENDPOINT in the environment, traces
// and metrics go to that collector. docs/howto/service.md explains the parts.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/tracing"
)

// Message is what the store keeps. A question and all messages of its answer are one exchange.
type Message struct {
	Role string // "user", "tool call", "tool result" or "assistant"
	Text string
	Cut  bool `json:",omitempty"` // the client left, or a Stop came, while the answer was streamed
}

type service struct {
	memory   *lockedmemory.LockedMemory[Message, Message]
	locker   *distlock.Locker
	stopping context.Context                // ends at SIGTERM: no new turn begins
	inbox    *inbox.Inbox[Message, Message] // nil without -inbox
}

var (
	lockURL = flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "mem://"), "URL of Redis or PostgreSQL; mem:// for one instance alone")
	listen  = flag.String("listen", "localhost:8080", "address to listen on")
	ttl     = flag.Duration("ttl", time.Minute, "how long a conversation waits for a killed instance")
	grace   = flag.Duration("grace", 15*time.Second, "how long turns may take that are under way at SIGTERM")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	observer, flush, err := observe(ctx)
	if err != nil {
		return err
	}
	defer flush()
	locker, store, err := open(ctx, *lockURL, &distlock.Options{Namespace: "chat", TTL: *ttl, Observer: observer, Interruptible: true})
	if err != nil {
		return err
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, turns)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return errors.Join(err, locker.Close(context.Background()))
	}
	slog.Info("listening on http://" + listener.Addr().String())

	s := &service{memory: memory, locker: locker, stopping: ctx}
	sweeps, err := s.openInbox()
	if err != nil {
		return errors.Join(err, listener.Close(), locker.Close(context.Background()))
	}
	defer sweeps.Wait()
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	return errors.Join(err, shutDown(server, locker))
}

// shutDown waits for the turns under way. Then Close ends those that are left, and releases their locks:
// the other instances need not wait for a TTL. It has time of its own. Last, the refusals go out.
func shutDown(server *http.Server, locker *distlock.Locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), *grace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		slog.Warn("turns are given up", "error", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(locker.Close(ctx), server.Shutdown(ctx))
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	post := s.post
	if s.inbox != nil {
		post = s.submit
	}
	mux.HandleFunc("POST /conversations/{id}", post)
	mux.HandleFunc("POST /conversations/{id}/stop", s.stop)
	mux.Handle("GET /conversations/{id}", http.TimeoutHandler(http.HandlerFunc(s.get), 5*time.Second, "")) // a silent store takes longer
	mux.HandleFunc("GET /alive", func(http.ResponseWriter, *http.Request) {})                              // a lock service that is away is no reason to restart
	mux.HandleFunc("GET /ready", s.ready)
	return mux
}

// session names the conversation of a tenant. In production, take the tenant from the credentials of the
// request.
func session(ctx context.Context, r *http.Request) context.Context {
	return lockedmemory.WithSession(ctx, fmt.Sprintf("%q/%q", r.Header.Get("X-Tenant"), r.PathValue("id")))
}

// post answers a message, in a turn that goes on when the client leaves. The client keeps the Idempotency-Key
// when it sends the message again, to any instance: then it gets the answer that is stored.
func (s *service) post(w http.ResponseWriter, r *http.Request) {
	events := &events{w: w}
	id, question, err := message(w, r)
	if err != nil {
		events.fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(session(context.WithoutCancel(r.Context()), r), 5*time.Minute)
	defer cancel()
	begins := context.AfterFunc(s.stopping, cancel) // SIGTERM ends the wait, not the turn
	defer begins()
	asked := false
	answer, err := s.memory.Answer(ctx, id, question, func(ctx context.Context) ([]Message, error) {
		if asked = true; !begins() {
			return nil, distlock.ErrClosed
		}
		history, err := s.memory.Load(ctx, "") // no other instance writes until the answer is stored
		if err != nil {
			return nil, err
		}
		return respond(ctx, r.Context(), append(history, question), id, events)
	})
	if err == nil && !asked { // the answer is an earlier one: it must be that of the same question
		known, _, unread := s.memory.Answered(ctx, id)
		if err = unread; err == nil && known.Input() != question {
			err = sessionstore.ErrIDConflict
		}
	}
	if err != nil {
		events.fail(err)
		return
	}
	events.send("complete", answer[len(answer)-1]) // replaces the text of the chunks
}

// message reads a message and its ID.
func message(w http.ResponseWriter, r *http.Request) (id string, question Message, err error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	id = r.Header.Get("Idempotency-Key")
	if err != nil || id == "" || !utf8.Valid(text) {
		err = fmt.Errorf("%w: a message needs a text in UTF-8 and an Idempotency-Key", distlock.ErrInvalidKey)
	}
	return id, Message{Role: "user", Text: string(text)}, err
}

// respond is the loop of the agent: it asks the model, calls tools, and returns what is to be stored. A
// client that leaves ends the model's work, and so does a Stop: the words until then are kept.
func respond(ctx, client context.Context, messages []Message, id string, events *events) ([]Message, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(client, cancel)()
	begin := len(messages)
	for step := range 10 {
		m, err := model(asking, messages, func(text string) { events.send("chunk", text) })
		stopped := context.Cause(ctx) == distlock.ErrInterrupted
		if err != nil && (stopped || ctx.Err() == nil && client.Err() != nil) && m.Text != "" {
			m.Cut, err = true, nil
		}
		if err != nil {
			return nil, cmp.Or(context.Cause(ctx), err) // the lease is lost, or the time is over
		}
		messages = append(messages, m)
		if m.Role == "assistant" {
			return messages[begin:], nil
		}
		lease, _ := lockedmemory.Lease(ctx)
		// The tool refuses a second call under the key, and lower tokens than it has seen.
		result, err := tool(ctx, m, fmt.Sprintf("%s/%s/%d", lease.Key(), id, step), lease.Fence())
		if err != nil {
			return nil, err
		}
		messages = append(messages, result)
	}
	return nil, errors.New("the model calls tools without end")
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	messages, err := s.memory.Load(session(r.Context(), r), "")
	if err != nil {
		(&events{w: w}).fail(err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(messages)
}

// ready is false from SIGTERM on, and while the lock service or the store does not answer.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	_, err := s.memory.Ping(ctx)
	if err = errors.Join(err, s.locker.Ping(ctx), s.stopping.Err()); err != nil {
		(&events{w: w}).fail(err)
	}
}

// open returns the lock and the store of a URL. PostgreSQL has the tables of pglock.Migrate and
// pgstore.Migrate.
func open(ctx context.Context, url string, lock *distlock.Options) (*distlock.Locker, *sessionstore.Store[Message, Message], error) {
	key, codec := lockedmemory.SessionKey, sessionstore.JSON[Message]{}
	keep := sessionstore.Retention{IdleTTL: 30 * 24 * time.Hour}
	view := sessionstore.Options{Window: 50} // exchanges that the model sees
	switch {
	case strings.HasPrefix(url, "postgres"):
		return pgstore.Open(ctx, url, key, codec, &pgstore.Options{Lock: *lock, Retention: keep, Store: view})
	case strings.HasPrefix(url, "mem://"):
		locker, err := memlock.New(lock)
		if err != nil {
			return nil, nil, err
		}
		store, err := memstore.New(key, codec, &keep, &view)
		return locker, store, err
	}
	return redisstore.Open(ctx, url, key, codec, &redisstore.Options{Lock: *lock, Retention: keep, Store: view})
}

// events is a stream of server-sent events.
type events struct {
	w     http.ResponseWriter
	begun bool // the status is sent
}

func (e *events) send(name string, data any) {
	if e.w == nil { // a Sweep has no client
		return
	}
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.begun = true
	text, _ := json.Marshal(data)
	fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, text)
	_ = http.NewResponseController(e.w).Flush()
}

// fail ends the stream with a status: as that of the reply, or after the first chunk as an event.
func (e *events) fail(err error) {
	is := func(target error) bool { return errors.Is(err, target) }
	status := http.StatusServiceUnavailable // send the message again, under its key, to any instance
	switch {
	case is(distlock.ErrInvalidKey), is(lockedmemory.ErrInvalidID), is(sessionstore.ErrTooLarge), is(sessionstore.ErrCodec):
		status = http.StatusBadRequest
	case is(sessionstore.ErrIDConflict), is(lockedmemory.ErrAnswerGone), is(lockedmemory.ErrStopped):
		status = http.StatusConflict
	case is(distlock.ErrNotAcquired) && !is(context.Canceled), is(lockedmemory.ErrInboxFull): // SIGTERM ends waits
		status = http.StatusTooManyRequests // the conversation is busy
	case is(distlock.ErrInvalidOption), is(errors.ErrUnsupported), is(sessionstore.ErrBroken):
		status = http.StatusInternalServerError // a repetition fails, too
	}
	slog.Warn("a request has failed", "status", status, "error", err)
	if e.begun {
		e.send("failed", status) // the chunks are not stored
		return
	}
	http.Error(e.w, http.StatusText(status), status)
}

// observe sets the log to JSON with trace IDs, and sends traces and metrics to the collector of the
// environment, if there is one. flush sends the last of them.
func observe(ctx context.Context) (observer *tracing.Tracing, flush func(), err error) {
	slog.SetDefault(slog.New(tracing.LogHandler(slog.NewJSONHandler(os.Stderr, nil))))
	flush = func() {}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		spans, err := otlptracehttp.New(ctx)
		metrics, failed := otlpmetrichttp.New(ctx)
		if err := errors.Join(err, failed); err != nil {
			return nil, nil, err
		}
		tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)))
		otel.SetTracerProvider(tracers)
		otel.SetMeterProvider(meters)
		flush = func() { _, _ = tracers.Shutdown(context.Background()), meters.Shutdown(context.Background()) }
	}
	observer, err = tracing.New() // with the providers above
	return observer, flush, err
}
