package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/distlock/driver"
)

// maxShown is how many waiters of a lock show reads.
const maxShown = 100

// lock reads one lock, with its first waiters if the backend keeps a queue. The Locker checks its key.
func (s *service) lock(ctx context.Context, key string) (lock, error) {
	if _, err := s.locker.Inspect(ctx, key); err != nil {
		return lock{}, err
	}
	free := driver.Listed{Name: s.name(key)} // a free lock is not listed
	if lister, ok := driver.As[driver.Lister](s.driver); ok {
		page, err := ask(ctx, func(ctx context.Context) (driver.ListReply, error) {
			return lister.List(ctx, driver.ListRequest{Namespace: s.namespace, Key: key, Limit: 1, Waiters: maxShown})
		})
		return lockOf(append(page.Names, free)[0]), err
	}
	state, err := ask(ctx, func(ctx context.Context) (driver.State, error) { return s.driver.Inspect(ctx, free.Name) })
	return lockOf(driver.Listed{Name: free.Name, State: state}), err
}

func (t *tool) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show KEY",
		Short: "Show the holder and the waiters of one lock",
		Long: "Show the holder of one lock, and its waiters in the order in which they get it,\n" +
			fmt.Sprintf("up to %d.\n", maxShown) +
			"A waiter stands for a process, and all its calls.\n" +
			"A waiter renews its place before ALIVE ends, or the backend drops it.\n" +
			"The exit code is 1 if the lock is free.",
		Args: wants("KEY"),
		RunE: t.withLock(func(ctx context.Context, s *service, key string) error {
			l, err := s.lock(ctx, key)
			if err != nil {
				return err
			}
			err = t.print(l, func() string {
				text := facts(l)
				if len(l.Queue) > 0 {
					text += "\n\n" + queueTable(l.Queue)
				}
				return text
			})
			if err == nil && !l.Held {
				return errFinding
			}
			return err
		}),
	}
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

func queueTable(queue []waiter) string {
	var rows [][]string
	for _, w := range queue {
		rows = append(rows, []string{strconv.FormatInt(w.Ticket, 10), w.Holder, millis(w.Alive), w.Trace})
	}
	return tabulate([]column{{name: "TICKET", right: true}, {name: "WAITER"},
		{name: "ALIVE", right: true}, {name: "TRACE ID"}}, rows)
}
