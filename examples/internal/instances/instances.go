// Package instances runs an example as a balancer in front of two instances, each a process. It plays clients
// of them.
package instances

import (
	"cmp"
	"context"
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
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/tracing"
)

// Settings are what an instance gets from the flags.
type Settings struct {
	Server     string // URL
	TTL, Delay time.Duration
	Observer   distlock.Observer
}

// Program is an example.
type Program struct {
	Usage string // with the flags of Main
	// Open makes an instance. Its requests have ended when shutdown is called, but not the runs whose clients
	// have left.
	Open func(Settings) (handler http.Handler, shutdown func(context.Context) error, err error)
	Tour func(url string) []Step
}

type flags struct {
	Settings
	listen, otlp string
	tour         bool
}

// Main is the main function of the example. It sets the header Instance of each response to the process.
func Main(p Program) {
	var f flags
	flag.StringVar(&f.listen, "listen", "localhost:8080", "")
	flag.StringVar(&f.Server, "server", "", "")
	flag.StringVar(&f.otlp, "otlp", "", "")
	flag.DurationVar(&f.TTL, "ttl", 2*time.Second, "")
	flag.DurationVar(&f.Delay, "model-delay", 400*time.Millisecond, "")
	flag.BoolVar(&f.tour, "tour", false, "")
	instance := flag.Bool("instance", false, "") // the balancer starts its instances with this flag
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), p.Usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%q is not a flag; for help: go run . -h\n", flag.Arg(0))
		os.Exit(2)
	}
	if u, err := url.Parse(f.otlp); f.otlp != "" && (err != nil || u.Host == "") {
		fmt.Fprintf(os.Stderr, "-otlp is %q, but must be a URL such as http://localhost:4318\n", f.otlp)
		os.Exit(2)
	}
	run := p.balance
	if *instance {
		run = p.answer
	}
	if err := run(f); err != nil {
		log.Fatal(err)
	}
}

// answer is an instance. It ends when the balancer closes its input, or has died.
func (p Program) answer(f flags) error {
	flush, err := export(f.otlp)
	if err != nil {
		return err
	}
	if f.Observer, err = tracing.New(); err != nil {
		return err
	}
	handler, shutdown, err := p.Open(f.Settings)
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal: the balancer ends first
	err = serve(ended, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Instance", strconv.Itoa(os.Getpid()))
		handler.ServeHTTP(w, r)
	}), func(address string) { fmt.Println(address) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, shutdown(ctx), flush(ctx))
}

// balance starts the instances and sends each request to one of them.
func (p Program) balance(f flags) error {
	if f.Server == "" {
		redis, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer redis.Close()
		redis.ClockTTL(true) // or no lock would ever expire
		f.Server = "redis://" + redis.Addr()
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, giveUp := context.WithCancelCause(interrupted)
	b := startInstances(append(os.Args[1:], "-instance", "-server", f.Server), giveUp)
	defer b.stop()
	b.await(ctx)
	var touring sync.WaitGroup
	var toured error
	err := serve(ctx, f.listen, b.handler(), func(address string) {
		log.Printf("listening on http://%s", address)
		if f.tour {
			touring.Go(func() { toured = Play(ctx, os.Stdout, p.Tour("http://"+address)); giveUp(nil) })
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
	to := otlptracehttp.WithEndpointURL(endpoint + "/v1/traces")
	exporter, err := otlptracehttp.New(context.Background(), to)
	if err != nil {
		return nil, err
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}
