package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/distlock/driver"
)

// lock reads one lock. The Locker checks its key.
func (s *service) lock(ctx context.Context, key string) (lock, error) {
	if _, err := s.locker.Inspect(ctx, key); err != nil {
		return lock{}, err
	}
	state, err := ask(ctx, func(ctx context.Context) (driver.State, error) { return s.driver.Inspect(ctx, s.name(key)) })
	return lockOf(driver.Listed{Name: s.name(key), State: state}), err
}

// queue reads one lock and up to limit of its waiters.
func (s *service) queue(ctx context.Context, key string, limit int) (lock, error) {
	lister, ok := driver.As[driver.Lister](s.driver)
	if !ok || !s.driver.Capabilities().Queues {
		return lock{}, s.cannot("show a queue: its waiters ask again after a pause, and it does not keep their order")
	}
	if _, err := s.locker.Inspect(ctx, key); err != nil {
		return lock{}, err
	}
	page, err := ask(ctx, func(ctx context.Context) (driver.ListReply, error) {
		return lister.List(ctx, driver.ListRequest{Namespace: s.namespace, Key: key, Limit: 1, Waiters: limit})
	})
	return lockOf(append(page.Names, driver.Listed{Name: s.name(key)})[0]), err // a free lock is not listed
}

func (t *tool) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show KEY",
		Short: "Show the holder of one lock",
		Long:  "Show the holder of one lock. The exit code is 1 if the lock is free.",
		Args:  wants("KEY"),
		RunE: t.withLock(func(ctx context.Context, s *service, key string) error {
			l, err := s.lock(ctx, key)
			if err != nil {
				return err
			}
			return t.printLock(l, func() string { return facts(l) })
		}),
	}
}

func (t *tool) queueCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "queue KEY",
		Short: "Show the waiters of one lock, in order",
		Long: "Show the waiters of one lock, in the order in which they get it.\n" +
			"A waiter stands for a process, and all its calls.\n" +
			"A waiter renews its place before ALIVE ends, or the backend drops it.\n" +
			"The exit code is 1 if the lock is free.",
		Args: wants("KEY"),
		RunE: t.withLock(func(ctx context.Context, s *service, key string) error {
			if limit > driver.MaxQueue {
				return invalid("--limit is %d, but must be from 1 to %d", limit, driver.MaxQueue)
			}
			l, err := s.queue(ctx, key, limit)
			if err != nil {
				return err
			}
			return t.printLock(l, func() string {
				text := facts(l)
				if len(l.Queue) > 0 {
					text += "\n\n" + t.queueTable(l.Queue)
				}
				return text
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "the most waiters to read")
	return cmd
}

// withLock opens the service for a command with the argument KEY.
func (t *tool) withLock(run func(ctx context.Context, s *service, key string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := t.open(cmd.Context())
		if err != nil {
			return err
		}
		defer s.close()
		return run(cmd.Context(), s, args[0])
	}
}

// printLock ends with a finding if the lock is free.
func (t *tool) printLock(l lock, lines func() string) error {
	err := t.print(l, lines)
	if err == nil && !l.Held {
		return errFinding
	}
	return err
}

// facts shows one lock, a line for each fact.
func facts(l lock) string {
	waiters := [2]string{"waiters", strconv.Itoa(l.Waiters)}
	if !l.Held {
		return pairs([2]string{"key", l.Key}, [2]string{"holder", "(free)"}, waiters)
	}
	return pairs([2]string{"key", l.Key}, [2]string{"holder", l.Holder}, [2]string{"held for", millis(l.Age)},
		[2]string{"TTL left", ttl(l.TTL)}, [2]string{"token", strconv.FormatInt(l.Token, 10)},
		[2]string{"trace ID", l.Trace}, waiters)
}

func (t *tool) queueTable(queue []waiter) string {
	var rows [][]string
	for _, w := range queue {
		rows = append(rows, []string{strconv.FormatInt(w.Ticket, 10), w.Holder, millis(w.Alive), w.Trace})
	}
	return t.tabulate([]column{{name: "TICKET", right: true, least: 8, first: true}, {name: "WAITER", least: 8},
		{name: "ALIVE", right: true}, {name: "TRACE ID", spare: true}}, rows)
}
