package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/metrics"
	"github.com/belugalock/belugalock/examples/agent/internal/page"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

// compare has all messages answered in each run. It fails if the lock around the whole turn broke
// its promise.
func compare(ctx context.Context, cfg config) (err error) {
	cfg.TTL = 5 * time.Second
	var chaos balancer.Chaos
	if cfg.Chaos {
		cfg.TTL = time.Second
		chaos = balancer.Chaos{Strikes: 10, Pause: cfg.TTL * 3 / 2}
	}
	var shown *metrics.Server
	if cfg.Metrics != "" {
		if shown, err = metrics.Listen(cfg.Metrics); err != nil {
			return fmt.Errorf("-metrics: %w", err)
		}
		defer func() { err = errors.Join(err, shown.Close()) }()
		fmt.Fprintf(os.Stderr, "metrics: %s\n", shown.URL())
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
	if err := (&runs{config: cfg, metrics: shown}).all(ctx, chaos, all); err != nil {
		return err
	}
	err = all.Print(os.Stdout)
	if cfg.Report != "" {
		err = errors.Join(err, page.Save(cfg.Report, all))
	}
	return err
}

// runs are the three runs of a comparison.
type runs struct {
	config
	servers *scratch.Servers
	metrics *metrics.Server // nil if there shall be none
}

// all borrows the servers for all runs.
func (r *runs) all(ctx context.Context, chaos balancer.Chaos, c *report.Comparison) (err error) {
	if r.servers, err = scratch.New(r.Lock, r.Store, r.Run); err != nil {
		return err
	}
	defer r.servers.Close()
	if err := r.servers.Prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.servers.Remove(context.WithoutCancel(ctx))) }()
	// A node that is killed stays away, so the last run alone loses one.
	calm := chaos
	calm.KillNode = nil
	if c.NoLock, err = r.one(ctx, report.NoLock, calm); err != nil {
		return err
	}
	if c.SaveOnly, err = r.one(ctx, report.SaveOnly, calm); err != nil {
		return err
	}
	c.WholeTurn, err = r.one(ctx, report.WholeTurn, chaos)
	return err
}

// one has all messages answered by instances, and judges the histories.
func (r *runs) one(ctx context.Context, locked report.Locked, chaos balancer.Chaos) (*report.Result, error) {
	cfg := r.config
	cfg.Locked = locked
	plan := balancer.Plan{Instances: cfg.Instances, Sessions: cfg.Sessions, Turns: cfg.Turns, Chaos: chaos}
	progress := report.Progress(plan.Deliveries(), locked, cfg.Chaos)
	result := &report.Result{Locked: locked, Began: time.Now()}
	var err error
	result.Tally, err = balancer.Run(ctx, cfg, plan, func(s spans.Span, so balancer.Tally) {
		result.Spans = append(result.Spans, s)
		progress(s.Name == spans.Turn && s.Error == "", so)
	}, func(instance int, page []byte) error {
		return r.metrics.Put(fmt.Sprint(locked, instance), page)
	})
	result.Took = time.Since(result.Began)
	if err != nil {
		return result, err
	}
	histories, err := cfg.histories(ctx, r.servers)
	for session, messages := range histories {
		result.Judge(session, messages, cfg.Turns)
	}
	return result, err
}
