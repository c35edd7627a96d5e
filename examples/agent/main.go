// Command agent lets several instances of an AI agent, each a process, work on the same
// conversations: first without a lock, then with a lock around Save alone, then with a lock around
// the whole turn. usage.txt, which -h prints, says more. How the lock is used is in agent.go.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/instances"
	"github.com/belugalock/belugalock/examples/agent/internal/page"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

//go:embed usage.txt
var usage string

// config is what the instances are told. Run begins the name of all that they write to servers.
type config struct {
	Lock, Store, Run           string
	Instances, Sessions, Turns int
	Locked                     report.Locked
	Chaos                      bool
	TTL                        time.Duration // how long others wait for what a dead instance held; a living one renews it
	Report                     string        // the file of the page, if there shall be one
}

func main() {
	instances.Serve(runAgent)

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
	err = compare(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func parse(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.Lock, "lock", "", "")
	flags.StringVar(&cfg.Store, "store", "", "")
	flags.IntVar(&cfg.Instances, "instances", 4, "")
	flags.IntVar(&cfg.Sessions, "sessions", 3, "")
	flags.IntVar(&cfg.Turns, "turns", 120, "")
	flags.BoolVar(&cfg.Chaos, "chaos", false, "")
	otlp := flags.String("otlp", "", "")
	flags.Func("report", "", func(path string) error {
		cfg.Report = path
		return page.Check(path)
	})
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	endpoint, err := url.Parse(*otlp)
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("%q is not a flag", flags.Arg(0))
	case cfg.Instances < 1 || cfg.Instances > 64 || cfg.Sessions < 1 || cfg.Turns < 1:
		return cfg, errors.New("-instances must be 1 to 64, -sessions and -turns at least 1")
	case cfg.Chaos && cfg.Instances < 2:
		return cfg, errors.New("-chaos needs two -instances at least: others go on where one was killed or paused")
	case cfg.Chaos && !instances.CanPause:
		return cfg, fmt.Errorf("-chaos cannot work here: it pauses processes by SIGSTOP, which %s does not have", runtime.GOOS)
	case *otlp != "" && (err != nil || endpoint.Host == "" || !strings.HasPrefix(endpoint.Scheme, "http")):
		return cfg, fmt.Errorf("-otlp is %q, but must be a URL such as http://localhost:4318", *otlp)
	case strings.HasPrefix(cfg.Lock, "mem:") || strings.HasPrefix(cfg.Store, "mem:"):
		return cfg, errors.New("mem:// cannot work: its locks and sessions live in one process, and this program starts several")
	}
	// This checks the URLs, and connects to no server.
	lock := cmp.Or(cfg.Lock, "redis://")
	if lock == ownQuorum {
		lock = "redis://"
	}
	servers, err := scratch.New(lock, cmp.Or(cfg.Store, "redis://"), "")
	if err != nil {
		return cfg, err
	}
	servers.Close()
	if *otlp != "" { // for the instances, which inherit it
		err = os.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint.JoinPath("v1/traces").String())
	}
	return cfg, err
}

// compare has all messages answered in each run. It fails if the lock around the whole turn broke
// its promise.
func compare(ctx context.Context, cfg config) (err error) {
	cfg.TTL = 5 * time.Second
	var chaos balancer.Chaos
	if cfg.Chaos {
		cfg.TTL = time.Second
		chaos = balancer.Chaos{Strikes: 10, Pause: cfg.TTL * 3 / 2}
	}
	all := &report.Comparison{Instances: cfg.Instances, Sessions: cfg.Sessions, Turns: cfg.Turns, Chaos: chaos, TTL: cfg.TTL, Began: time.Now()}
	all.Locks, all.Histories, all.Servers = cfg.about()
	var own embedded
	defer own.close()
	if err := own.serve(&cfg); err != nil {
		return err
	}
	if cfg.Chaos {
		chaos.KillNode = own.killer()
	}
	cfg.Run = "agent-" + rand.Text()
	if err := runAll(ctx, cfg, chaos, all); err != nil {
		return err
	}
	err = all.Print(os.Stdout)
	if cfg.Report != "" {
		err = errors.Join(err, page.Save(cfg.Report, all))
	}
	return err
}

// runAll borrows the servers for all runs.
func runAll(ctx context.Context, cfg config, chaos balancer.Chaos, all *report.Comparison) (err error) {
	servers, err := scratch.New(cfg.Lock, cfg.Store, cfg.Run)
	if err != nil {
		return err
	}
	defer servers.Close()
	if err := servers.Prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Remove(context.WithoutCancel(ctx))) }()
	// A node that is killed stays away, so the last run alone loses one.
	calm := chaos
	calm.KillNode = nil
	if all.NoLock, err = run(ctx, cfg, report.NoLock, servers, calm); err != nil {
		return err
	}
	if all.SaveOnly, err = run(ctx, cfg, report.SaveOnly, servers, calm); err != nil {
		return err
	}
	all.WholeTurn, err = run(ctx, cfg, report.WholeTurn, servers, chaos)
	return err
}

// run has all messages answered by instances, and judges the histories.
func run(ctx context.Context, cfg config, locked report.Locked, servers *scratch.Servers, chaos balancer.Chaos) (*report.Result, error) {
	cfg.Locked = locked
	plan := balancer.Plan{Instances: cfg.Instances, Sessions: cfg.Sessions, Turns: cfg.Turns, Chaos: chaos}
	progress := report.Progress(plan.Deliveries(), cfg.Locked, cfg.Chaos)
	r := &report.Result{Locked: locked, Began: time.Now()}
	var err error
	r.Tally, r.Events, err = balancer.Run(ctx, cfg, plan, func(s spans.Span, so balancer.Tally) {
		r.Spans = append(r.Spans, s)
		progress(s.Name == spans.Turn && s.Error == "", so)
	})
	r.Took = time.Since(r.Began)
	if err != nil {
		return r, err
	}
	histories, err := cfg.histories(ctx, servers)
	for session, messages := range histories {
		r.Judge(session, messages, cfg.Turns)
	}
	return r, err
}
