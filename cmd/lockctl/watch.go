package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// watchLimit is how many locks a picture of watch reads at most.
const watchLimit = 1000

func (t *tool) watchCommand() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show a live table of the locks until ctrl-C",
		Long: "Show a live table of the locks, the longest held first, until ctrl-C.\n" +
			"With -o json, each reading is one line.\n" +
			fmt.Sprintf("A reading has at most %d locks.", watchLimit),
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 200*time.Millisecond {
				return invalid("--every is %s, but must be at least 200ms", every)
			}
			s, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			return t.follow(cmd.Context(), every, func() error {
				locks, more, err := s.locks(cmd.Context(), watchLimit)
				if err != nil {
					return err
				}
				order(locks, true)
				return t.picture(locks, more, time.Now())
			})
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two readings")
	return cmd
}

// follow calls f now and after each pause. The end of ctx is no error. If the service answered before, an
// outage ends nothing: an operator watches until a failover is over.
func (t *tool) follow(ctx context.Context, pause time.Duration, f func() error) error {
	for answered := false; ; {
		err := f()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			answered = true
		case !answered || exitCode(err) != exitUnavailable:
			return err
		default:
			t.report(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// picture draws one reading over the one before.
func (t *tool) picture(locks []lock, more bool, at time.Time) error {
	if t.output == "json" {
		return json.NewEncoder(t.out).Encode(map[string]any{
			"at": at.UTC().Format(time.RFC3339Nano), "locks": orEmpty(locks), "more": more,
		})
	}
	all := fmt.Sprint(len(locks))
	if more {
		all += " or more"
	}
	shown := locks
	width, height := t.size()
	if room := height - 4; room > 0 && len(shown) > room {
		shown = shown[:room]
	}
	text := fmt.Sprintf("%s  locks: %s, shown: %d  (ctrl-C ends)\n\n%s\n",
		at.Format(time.TimeOnly), all, len(shown), t.lockTable(shown))
	if width > 0 {
		// To the top left; each line is cleared to its end, and the screen below the last.
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	}
	_, err := io.WriteString(t.out, text)
	return err
}
