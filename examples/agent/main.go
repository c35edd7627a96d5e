// Command agent lets several instances of an AI agent, each a process, work on the same conversations:
// first without a lock, then with a lock around Save alone, then with a lock around the whole turn.
// usage.txt, which -h prints, says more. How the lock is used is in agent.go.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/internal/test/child"
)

//go:embed usage.txt
var usage string

// config is what the user has asked for.
type config struct {
	Lock                       string // the URL of the server; empty for an embedded one
	Instances, Sessions, Turns int
	Chaos                      bool
	Report                     string // the file of the page, or empty
}

func main() {
	child.Serve(map[string]child.Work{balancer.Role: child.Role(runAgent)})

	cfg, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\nFor help: go run ./examples/agent -h\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := compare(ctx, cfg); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.Lock, "lock", "", "")
	flags.IntVar(&cfg.Instances, "instances", 4, "")
	flags.IntVar(&cfg.Sessions, "sessions", 3, "")
	flags.IntVar(&cfg.Turns, "turns", 120, "")
	flags.BoolVar(&cfg.Chaos, "chaos", false, "")
	flags.StringVar(&cfg.Report, "report", "", "")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("%q is not a flag", flags.Arg(0))
	case cfg.Instances < 1 || cfg.Instances > 64 || cfg.Sessions < 1 || cfg.Turns < 1:
		return cfg, errors.New("-instances must be 1 to 64, -sessions and -turns at least 1")
	case cfg.Chaos && cfg.Instances < 2:
		return cfg, errors.New("-chaos needs two -instances at least: others go on where one was killed or paused")
	case cfg.Chaos && runtime.GOOS == "windows":
		return cfg, errors.New("-chaos cannot work here: Windows has no signal that pauses a process")
	}
	if cfg.Lock != "" {
		server, err := open(cfg.Lock, "")
		if err != nil {
			return cfg, fmt.Errorf("-lock: %w", err)
		}
		server.close()
	}
	if cfg.Report != "" { // rather now than after the runs
		file, err := os.OpenFile(cfg.Report, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return cfg, fmt.Errorf("-report: %w", err)
		}
		return cfg, file.Close()
	}
	return cfg, nil
}
