package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// question is one that is pending, as JSON shows it. Its text is personal data.
type question struct {
	ID    string `json:"id"`
	Age   string `json:"age"`
	Bytes int    `json:"bytes"`
}

func (t *tool) sessionInboxCommand() *cobra.Command {
	var stop, yes bool
	cmd := &cobra.Command{
		Use:   "inbox SESSION [--stop]",
		Short: "Show the questions that are pending in a session, or stop them",
		Long: "Show the questions that are pending in a session, by arrival.\n" +
			"With --stop, none of them is ever answered.\n" +
			"The exit code is 1 if nothing is pending.",
		Args: wants("SESSION"),
		RunE: t.withStore(func(ctx context.Context, s *sessions, args []string) error {
			items, err := ask(ctx, func(ctx context.Context) (items []storedriver.Item, err error) {
				_, items, err = s.Pending(ctx, storedriver.Access{Session: args[0]})
				return items, err
			})
			switch {
			case err != nil:
				return err
			case len(items) == 0:
				return t.finding("nothing is pending: check the name of the session, and the namespace of --store")
			}
			questions, rows := []question{}, [][]string{}
			for _, i := range items {
				q := question{i.ID, span(i.Age), len(i.Question)}
				questions, rows = append(questions, q), append(rows, []string{q.Age, clean(q.ID), strconv.Itoa(q.Bytes)})
			}
			reply := map[string]any{"session": args[0], "pending": questions, "stopped": stop}
			table := tabulate([]column{{name: "AGE", right: true}, {name: "ID"}, {name: "BYTES", right: true}}, rows)
			if !stop {
				return t.print(reply, func() string { return table })
			}
			if !yes && !t.confirm(ctx, table+"\nStop them?") {
				return t.finding("not confirmed; nothing was changed: answer yes, or use --yes")
			}
			memory, locks, err := t.memoryOf(ctx, s, args[0])
			if err != nil {
				return err
			}
			defer locks.close()
			for _, q := range questions {
				if _, err := memory.Stop(ctx, q.ID, 0); err != nil {
					return err
				}
			}
			return t.print(reply, func() string { return table + "\nStopped. None of them is answered." })
		}),
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "stop all of them")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
