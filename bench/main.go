// Command bench measures this library and its peers side by side. It starts redis-servers and a
// PostgreSQL for that. usage.txt has the flags, which -h prints. Package scenario has the measurements, and
// package subject the libraries.
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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/chart"
	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/servers"
)

//go:embed usage.txt
var usage string

// config is what the flags say.
type config struct {
	only   []string
	chart  string           // a file
	rounds *scenario.Rounds // of tests
}

func main() {
	child.Serve(scenario.Roles())

	cfg, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\nFor help: go run . -h\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err = run(ctx, cfg, os.Stdout, os.Stderr)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	only := flags.String("only", strings.Join(scenario.Names(), ","), "")
	flags.StringVar(&cfg.chart, "chart", "", "")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	cfg.only = strings.Split(*only, ",")
	for _, name := range cfg.only {
		if !slices.Contains(scenario.Names(), name) {
			return cfg, fmt.Errorf("no scenario is called %q, there are: %s", name, strings.Join(scenario.Names(), ", "))
		}
	}
	return cfg, nil
}

// run measures, and writes the results to out and what it is doing to progress.
func run(ctx context.Context, cfg config, out, progress io.Writer) error {
	began := time.Now()
	bench := &scenario.Bench{Rounds: cfg.rounds, Progress: func(text string) {
		fmt.Fprintf(progress, "%4.0fs  %s\n", time.Since(began).Seconds(), text)
	}}
	versions, stop, err := servers.ForProgram(func(tb testing.TB) string { return start(tb, bench, cfg.only) })
	if err != nil {
		return err
	}
	defer stop()
	if bench.Postgres != "" {
		if err := subject.PreparePostgres(ctx, bench.Postgres); err != nil {
			return fmt.Errorf("tables in PostgreSQL: %w", err)
		}
	}
	about := fmt.Sprintf("%d CPUs, %s on loopback, %s; %s",
		runtime.NumCPU(), versions, runtime.Version(), began.Format("2 January 2006"))
	var outcomes []*scenario.Outcome
	var failed []error // one scenario that cannot be run does not cost the others
	for _, name := range cfg.only {
		outcome, err := bench.Run(ctx, name)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		outcomes = append(outcomes, outcome)
		if name == "cross" && cfg.chart != "" {
			svg, err := chart.Waits(outcome.Waits)
			failed = append(failed, err, os.WriteFile(cfg.chart, svg, 0o644))
		}
	}
	failed = append(failed, writeTables(out, about, outcomes))
	return errors.Join(failed...)
}

// start starts the servers of the scenarios, and returns their versions.
func start(tb testing.TB, bench *scenario.Bench, only []string) (versions string) {
	s := servers.StartRedis(tb)
	bench.Addr, versions = s.Addr(), "Redis "+s.Info("redis_version")
	if slices.ContainsFunc(only, scenario.NeedsPostgres) {
		p := servers.StartPostgres(tb, "fsync=on")
		version, _ := p.Do("SHOW server_version")
		bench.Postgres, versions = p.URL("postgres"), versions+" and PostgreSQL "+version
	}
	if slices.ContainsFunc(only, scenario.NeedsQuorum) {
		q := servers.StartQuorum(tb, 7)
		q.Nodes()[5].Kill()
		q.Nodes()[6].Pause()
		bench.Quorum = q.Addrs()
	}
	return versions
}
