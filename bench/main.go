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
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/bench/internal/chart"
	"github.com/belugalock/belugalock/bench/internal/report"
	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/testservers"
)

//go:embed usage.txt
var usage string

// config is what the flags say.
type config struct {
	only        []string
	pace        scenario.Pace
	paceName    string
	json, check bool
	out         string
}

// errMissed: -check was given, and a bar is missed. The tables say which.
var errMissed = errors.New("bars are missed")

func main() {
	childproc.Serve(scenario.Roles())

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
	only := flags.String("only", "", "")
	quick := flags.Bool("quick", false, "")
	flags.BoolVar(&cfg.json, "json", false, "")
	flags.BoolVar(&cfg.check, "check", false, "")
	flags.StringVar(&cfg.out, "out", "", "")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	cfg.pace, cfg.paceName = scenario.Full, "full"
	if *quick {
		cfg.pace, cfg.paceName = scenario.Quick, "quick"
	}
	cfg.only, err = scenario.Select(*only)
	return cfg, err
}

// run measures, and writes the results to out and what it is doing to progress.
func run(ctx context.Context, cfg config, out, progress io.Writer) error {
	if cfg.out != "" { // a run is too long to find out at its end
		if err := os.MkdirAll(cfg.out, 0o755); err != nil {
			return fmt.Errorf("directory for the results: %w", err)
		}
	}
	s, stop, err := testservers.Run(scenario.ServerArgs...)
	if err != nil {
		return err
	}
	defer stop()

	began := time.Now()
	r := &report.Report{Time: began, Go: runtime.Version(), Redis: s.Info("redis_version"), CPUs: runtime.NumCPU(), Pace: cfg.paceName}
	bench := &scenario.Bench{Addr: s.Addr(), Pace: cfg.pace, Progress: func(text string) {
		fmt.Fprintf(progress, "%4.0fs  %s\n", time.Since(began).Seconds(), text)
	}}
	if slices.ContainsFunc(cfg.only, scenario.NeedsPostgres) {
		p, stop, err := testservers.RunPostgres(scenario.PostgresSettings...)
		if err != nil {
			return err
		}
		defer stop()
		bench.Postgres = p.URL("postgres")
		if err := subject.PreparePostgres(ctx, bench.Postgres); err != nil {
			return fmt.Errorf("tables in PostgreSQL: %w", err)
		}
		if r.Postgres, err = p.Do("SHOW server_version"); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(cfg.only, scenario.NeedsQuorum) {
		q, stop, err := testservers.RunQuorum(scenario.QuorumServers)
		if err != nil {
			return err
		}
		defer stop()
		bench.Quorum = scenario.NewQuorum(q)
	}
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
		r.Outcomes = append(r.Outcomes, outcome)
	}
	r.Took = time.Since(began)
	failed = append(failed, write(r, cfg, out))
	if cfg.check && len(r.Missed()) > 0 {
		failed = append(failed, errMissed)
	}
	return errors.Join(failed...)
}

func write(r *report.Report, cfg config, out io.Writer) error {
	if cfg.out != "" {
		file, err := os.Create(filepath.Join(cfg.out, "results.json"))
		if err != nil {
			return err
		}
		if err := errors.Join(r.WriteJSON(file), file.Close(), chart.Write(cfg.out, r.Outcomes)); err != nil {
			return err
		}
	}
	if cfg.json {
		return r.WriteJSON(out)
	}
	return r.WriteTables(out)
}
