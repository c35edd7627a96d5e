package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/page"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/lockedmemory"
)

// order is what an instance is told.
type order struct {
	Instance  int // from 1
	Lock, Run string
	Locked    report.Locked
	TTL       time.Duration // how long others wait for what a dead instance held; a living one renews it
	Chaos     bool
}

// compare has all messages answered in each run. It fails if the lock around the whole turn broke
// its promise.
func compare(ctx context.Context, cfg config) (err error) {
	c := &report.Comparison{Chaos: cfg.Chaos, TTL: 5 * time.Second, Server: "the server at -lock", Began: time.Now(),
		Plan: balancer.Plan{Instances: cfg.Instances, Sessions: cfg.Sessions, Turns: cfg.Turns}}
	if cfg.Chaos {
		c.TTL, c.Strikes, c.Pause = time.Second, 10, 1500*time.Millisecond
	}
	if cfg.Lock == "" {
		redis, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer redis.Close()
		redis.ClockTTL(true) // or no lock would ever expire
		cfg.Lock, c.Server = "redis://"+redis.Addr(), "a Redis embedded in the program"
	}
	run := "agent_" + strings.ToLower(rand.Text())
	server, err := open(cfg.Lock, run)
	if err != nil {
		return err
	}
	defer server.close()
	if err := server.prepare(ctx); err != nil {
		_ = server.remove(context.WithoutCancel(ctx)) // err has the cause
		return err
	}
	defer func() { err = errors.Join(err, server.remove(context.WithoutCancel(ctx))) }()
	for i, locked := range []report.Locked{report.NoLock, report.SaveOnly, report.WholeTurn} {
		result := &report.Result{Locked: locked}
		c.Runs[i] = result
		told := func(instance int) any { return order{instance, cfg.Lock, run, locked, c.TTL, cfg.Chaos} }
		began := time.Now()
		result.Outcome, err = balancer.Run(ctx, c.Plan, told, report.Progress(c.Deliveries(), locked))
		result.Took = time.Since(began)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return err
		}
		for session := range cfg.Sessions {
			messages, err := stored(ctx, server, locked, session)
			if err != nil {
				return err
			}
			result.Judge(messages, cfg.Turns)
		}
	}
	err = c.Print(os.Stdout)
	if cfg.Report == "" {
		return err
	}
	var html bytes.Buffer
	return errors.Join(err, page.Write(&html, c), os.WriteFile(cfg.Report, html.Bytes(), 0o666))
}

// conversation is the session ID of a conversation, for the store and for its lock.
func conversation(session int) string { return fmt.Sprint("conversation-", session) }

// listOf is the list of a conversation. Each run has its own.
func listOf(s *server, locked report.Locked, session int) list {
	return list{server: s, name: fmt.Sprint(locked, "-", session)}
}

// stored returns a conversation at the end of a run.
func stored(ctx context.Context, s *server, locked report.Locked, session int) ([]history.Message, error) {
	if locked != report.WholeTurn {
		return listOf(s, locked, session).Load(ctx, "")
	}
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	return store.Load(lockedmemory.WithSession(ctx, conversation(session)), "")
}
