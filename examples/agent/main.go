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
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

//go:embed usage.txt
var usage string

// config is what the instances are told. Run begins the name of all that they write to servers.
type config struct {
	Lock, Store, Run           string
	Instances, Sessions, Turns int
	Locked                     report.Locked
	Chaos                      bool
	Metrics                    string        // the address of the metrics, if there shall be any
	TTL                        time.Duration // how long others wait for what a dead instance held; a living one renews it
	Report                     string        // the file of the page, if there shall be one
}

func main() {
	balancer.Serve(runAgent)

	cfg, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return
	}
	if err != nil {
		complain(err)
		fmt.Fprintln(os.Stderr, "For help: go run ./examples/agent -h")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err = compare(ctx, cfg)
	if err != nil {
		complain(err)
		os.Exit(1)
	}
}

// complain prints an error. A terminal would break its lines within words.
func complain(err error) {
	line := fmt.Sprintf("agent: %v\n", err)
	if term.IsTerminal(int(os.Stderr.Fd())) {
		line = report.Paragraph(line)
	}
	fmt.Fprint(os.Stderr, line)
}
