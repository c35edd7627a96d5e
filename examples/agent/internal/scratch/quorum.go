package scratch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redlock"
)

// onQuorum is nodes in which all keys of a run begin with its name.
type onQuorum struct {
	nodes        []onRedis
	restartDelay time.Duration
}

func newQuorum(url, run string) (server, error) {
	clients, restartDelay, err := redlock.ParseURL(url)
	if err != nil {
		return nil, err
	}
	q := &onQuorum{restartDelay: restartDelay}
	for _, client := range clients {
		q.nodes = append(q.nodes, onRedis{client, run})
	}
	// It checks the number of nodes.
	driver, err := redlock.NewDriver(clients, &redlock.Options{RestartDelay: restartDelay})
	if err != nil {
		q.Close()
		return nil, err
	}
	return q, driver.Close()
}

// Prepare fails if fewer nodes answer than a quorum has.
func (q *onQuorum) Prepare(ctx context.Context) error {
	if err := q.quorum(func(node onRedis) error { return node.Prepare(ctx) }); err != nil {
		return fmt.Errorf("no answer from a quorum: %w", err)
	}
	return nil
}

func (q *onQuorum) Locker(_ context.Context, opts distlock.Options) (*distlock.Locker, error) {
	clients := make([]redis.UniversalClient, len(q.nodes))
	for i, node := range q.nodes {
		clients[i], opts.Namespace = node.client, node.run
	}
	return redlock.New(clients, &redlock.Options{Options: opts, RestartDelay: q.restartDelay})
}

// Remove leaves the keys of a minority that does not answer. They expire after a day.
func (q *onQuorum) Remove(ctx context.Context) error {
	return q.quorum(func(node onRedis) error { return node.Remove(ctx) })
}

// quorum returns nil if a call succeeds at a quorum of nodes.
func (q *onQuorum) quorum(call func(onRedis) error) error {
	errs := make([]error, len(q.nodes))
	var all sync.WaitGroup
	for i, node := range q.nodes {
		all.Go(func() { errs[i] = call(node) })
	}
	all.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if 2*failed < len(q.nodes) {
		return nil
	}
	return errors.Join(errs...)
}

func (q *onQuorum) Close() {
	for _, node := range q.nodes {
		node.Close()
	}
}
