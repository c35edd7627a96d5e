package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/distlock/driver"
)

// stops is what an operator reads before a stop.
const stops = `What a stop does:
- Nothing that the turn does afterwards is stored, also if it runs on.
- The context of the turn ends: in a few round trips if its Locker has the
  option Interruptible, else at its next renewal, within a third of its TTL.
- With --id, the message is never answered, also if it waits or comes later.
- Without --id, the message of the turn is never answered, and the turns that
  wait already end, too. Later turns run.
- With --grace, an answer within that time is stored.
`

func (t *tool) stopCommand() *cobra.Command {
	var id string
	var grace time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "stop SESSION [--id ID] [--grace D]",
		Short: "Stop the turn of a session, or one message",
		Long: "Stop the turn of a session, or one message by its ID.\n" +
			"Without --id, the exit code is 1 if no turn runs.\n\n" + stops,
		Args: wants("SESSION"),
		RunE: t.withStore(func(ctx context.Context, s *sessions, args []string) error {
			if grace < 0 {
				return invalid("--grace is %s, but must not be negative", grace)
			}
			memory, locks, err := t.memoryOf(ctx, s, args[0])
			if err != nil {
				return err
			}
			defer locks.close()
			if _, asks := driver.As[driver.Asker](locks.driver); !asks && id == "" {
				return locks.cannot("stop a turn: name its message with --id")
			}
			l, err := locks.lock(ctx, args[0])
			switch {
			case err != nil:
				return err
			case !l.Held && id == "":
				return t.finding("the lock is free, so no turn runs; nothing was changed")
			}
			if !yes {
				fmt.Fprintf(t.errs, "%s\n\n%s\n", facts(l), stops)
				if !t.confirm(ctx, "Stop it?") {
					return t.finding("not confirmed; nothing was changed: answer yes, or use --yes")
				}
			}
			stored, err := memory.Stop(ctx, id, grace)
			if err != nil {
				return err
			}
			return t.print(map[string]any{"session": args[0], "id": id, "stored": stored}, func() string {
				if stored {
					return "The answer was stored first."
				}
				return "Stopped. Nothing more of it is stored."
			})
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "the ID of the message; default: turns that run and wait")
	cmd.Flags().DurationVar(&grace, "grace", 0, "how long to wait for an answer, as 10s")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
