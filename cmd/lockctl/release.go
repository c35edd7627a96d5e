package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// consequences is what an operator reads before a release.
const consequences = `What a release does:
- The next waiter gets the lock at once.
- The old holder notices at its next renewal, within a third of its TTL.
  Its context then ends with distlock.ErrLost. This grant is over for it.
- Until then the old holder works on, beside the next holder.
- A fenced store stays safe: once the next holder has read or written there,
  the store rejects each write of the old holder.
- Other work may overlap or happen twice. If the old holder runs, stop it first.
`

func (t *tool) releaseCommand() *cobra.Command {
	var token int64
	var yes bool
	cmd := &cobra.Command{
		Use:   "release KEY --token N",
		Short: "End the lock of a holder that hangs",
		Long: "End one grant of a lock, named by its fencing token, see lockctl show.\n" +
			"If the lock has another token by now, nothing changes and the exit code is 1.\n\n" + consequences,
		Args: wants("KEY"),
		RunE: t.withLock(func(ctx context.Context, s *service, key string) error {
			return t.release(ctx, s, key, token, yes)
		}),
	}
	cmd.Flags().Int64Var(&token, "token", 0, "the token of the grant to end (required)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (t *tool) release(ctx context.Context, s *service, key string, token int64, yes bool) error {
	if token < 1 {
		return invalid("--token is missing or not positive: lockctl show has it")
	}
	breaker, ok := driver.As[driver.Breaker](s.driver)
	if !ok {
		return s.cannot("end a lock for an operator: stop the holder's process, and wait for the end of the TTL")
	}
	l, err := s.lock(ctx, key)
	switch {
	case err != nil:
		return err
	case !l.Held:
		return t.finding("the lock is free; nothing was changed")
	case token != l.Token:
		return t.finding("the lock has the token %d now, not %d; nothing was changed: look again with lockctl show",
			l.Token, token)
	}
	if !yes {
		fmt.Fprintf(t.errs, "%s\n\n%s\n", facts(l), consequences)
		if !t.confirm(ctx, "End this lock?") {
			return t.finding("not confirmed; nothing was changed: answer yes, or use --yes")
		}
	}
	broken, err := ask(ctx, func(ctx context.Context) (bool, error) {
		return breaker.Break(ctx, s.name(key), token)
	})
	if err != nil && driver.MayHaveEffect(err) {
		return fmt.Errorf("%w: the lock may be released, now or in a moment: look with lockctl show: %w",
			distlock.ErrOutcomeUnknown, err)
	}
	if err != nil {
		return err
	}
	if !broken {
		return t.finding("the lock does not have the token %d any more; nothing was changed: look again with lockctl show",
			token)
	}
	return t.print(map[string]any{"key": key, "token": token, "released": true}, func() string {
		return fmt.Sprintf("Released. The lock of %s under token %d has ended.", clean(l.Holder), token)
	})
}

// finding writes why nothing was done. The exit code is exitFinding.
func (t *tool) finding(format string, args ...any) error {
	t.say(format, args...)
	return errFinding
}

// confirm asks a question. Only y and yes confirm.
func (t *tool) confirm(ctx context.Context, question string) bool {
	fmt.Fprint(t.errs, question+" [y/N] ")
	answers := make(chan string, 1)
	go func() { // a read of the terminal does not end with ctx
		answer, err := bufio.NewReader(t.in).ReadString('\n')
		if err != nil {
			fmt.Fprintln(t.errs)
		}
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case answer := <-answers:
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		return false
	}
}
