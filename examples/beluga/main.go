// Beluga is a chat service on a memory of Beluga AI that its instances share: see usage.txt and README.md.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

//go:embed usage.txt
var usage string

func main() {
	listen := flag.String("listen", "localhost:8080", "")
	url := flag.String("memory", "", "")
	file := flag.String("config", "", "")
	delay := flag.Duration("model-delay", 300*time.Millisecond, "")
	grace := flag.Duration("grace", 30*time.Second, "")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if flag.NArg() > 0 || *url != "" && *file != "" {
		fmt.Fprintln(os.Stderr, "give -memory or -config, and nothing but flags: -h tells more")
		os.Exit(2)
	}
	if err := run(*listen, *url, *file, *delay, *grace); err != nil {
		log.Fatal(err)
	}
}

func run(listen, url, file string, delay, grace time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cfg, err := configuration(url, file)
	if err != nil {
		return err
	}
	mem, err := belugamemory.New(cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, mem.Close(context.Background()))
	}
	log.Printf("listening on http://%s", listener.Addr())

	server := &http.Server{Handler: (&service{mem, delay}).handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		stop() // a second signal ends the process at once
		log.Print("shutting down")
	case err = <-ended:
	}
	return errors.Join(err, shutDown(server, mem, grace))
}

// shutDown takes no more messages, and answers those under way.
func shutDown(server *http.Server, mem *belugamemory.Memory, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Printf("not all messages were answered: %v", err)
	}

	// Every turn that still works or waits ends now, and its lease is given back: the other
	// instances need not wait until it expires. The last answers, which say "try again", can go out
	// then.
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(mem.Close(ctx), server.Shutdown(ctx))
}

func configuration(url, file string) (cfg config.ProviderConfig, err error) {
	if file == "" {
		cfg.BaseURL = url
		if url == "" {
			cfg.BaseURL = "redis://localhost:6379"
		}
		return cfg, nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &cfg)
	}
	if err != nil {
		return cfg, fmt.Errorf("-config: %w", err)
	}
	return cfg, nil
}
