// Beluga is a chat service on a Runner of Beluga AI: a balancer in front of two instances, each a
// process, that share the chats. See usage.txt and README.md. Begin to read at service.go.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/belugalock/belugalock/tracing"
)

//go:embed usage.txt
var usage string

type settings struct {
	listen, server, otlp string
	ttl, delay           time.Duration
	tour                 bool
}

func main() {
	var s settings
	flag.StringVar(&s.listen, "listen", "localhost:8080", "")
	flag.StringVar(&s.server, "server", "", "")
	flag.StringVar(&s.otlp, "otlp", "", "")
	flag.DurationVar(&s.ttl, "ttl", 2*time.Second, "")
	flag.DurationVar(&s.delay, "model-delay", 400*time.Millisecond, "")
	flag.BoolVar(&s.tour, "tour", false, "")
	instance := flag.Bool("instance", false, "") // the balancer starts its instances with this flag
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%q is not a flag; for help: go run . -h\n", flag.Arg(0))
		os.Exit(2)
	}
	if u, err := url.Parse(s.otlp); s.otlp != "" && (err != nil || u.Host == "") {
		fmt.Fprintf(os.Stderr, "-otlp is %q, but must be a URL such as http://localhost:4318\n", s.otlp)
		os.Exit(2)
	}
	run := balance
	if *instance {
		run = answer
	}
	if err := run(s); err != nil {
		log.Fatal(err)
	}
}

// answer is an instance. It ends when the balancer closes its input, or has died.
func answer(s settings) error {
	flush, err := export(s.otlp)
	if err != nil {
		return err
	}
	observer, err := tracing.New()
	if err != nil {
		return err
	}
	opts := belugarunner.WithStream()
	opts.TTL, opts.Observer = s.ttl, observer
	opts.Interruptible, opts.KeepPartial = true, true // a stop takes effect at once, and keeps the text until then
	runner, err := belugarunner.New(newAgent(s.delay), s.server, opts)
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal: the balancer ends first
	err = serve(ended, "127.0.0.1:0", (&service{runner}).handler(), func(address string) { fmt.Println(address) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // also for runs whose clients have left
	defer cancel()
	return errors.Join(err, runner.Shutdown(ctx), flush(ctx))
}

// balance starts the instances and sends each request to one of them.
func balance(s settings) error {
	if s.server == "" {
		redis, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer redis.Close()
		redis.ClockTTL(true) // or no lock would ever expire
		s.server = "redis://" + redis.Addr()
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, giveUp := context.WithCancelCause(interrupted)
	b := startInstances(append(os.Args[1:], "-instance", "-server", s.server), giveUp)
	defer b.stop()
	var touring sync.WaitGroup
	var toured error
	err := serve(ctx, s.listen, b.handler(), func(address string) {
		log.Printf("listening on http://%s", address)
		if s.tour {
			touring.Go(func() { toured = tour(ctx, "http://"+address, os.Stdout); giveUp(nil) })
		}
	})
	giveUp(err) // the first call counts
	touring.Wait()
	if why := context.Cause(ctx); interrupted.Err() == nil && why != context.Canceled {
		err = why
	}
	return cmp.Or(err, toured)
}

// serve answers requests until ended, and then those that have begun.
func serve(ended context.Context, address string, handler http.Handler, listens func(address string)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	listens(listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ended.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

// export sends the spans of locks and runs to an OpenTelemetry collector. Call it before tracing.New, which
// takes the provider of the process.
func export(endpoint string) (flush func(context.Context) error, err error) {
	if endpoint == "" {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"))
	if err != nil {
		return nil, err
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}
