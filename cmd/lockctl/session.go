package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// deleteWait is how long session delete waits for the lock of the session.
const deleteWait = 30 * time.Second

// exchange is one as JSON shows it.
type exchange struct {
	Place    string   `json:"place"`
	Token    int64    `json:"token"`
	Granted  string   `json:"granted"` // the moment that the token stands for
	ID       string   `json:"id"`
	Messages int      `json:"messages"`
	Bytes    int      `json:"bytes"`
	Broken   string   `json:"broken,omitempty"`
	Texts    []string `json:"texts,omitempty"` // with --text alone: they are personal data
}

const noExchange = "the session has no exchange: check its name, and the namespace of --store"

func exchangeOf(e storedriver.Entry, withText bool) exchange {
	x := exchange{Place: e.Place.String(), Token: e.Place.Fence, ID: e.ID,
		Granted: time.UnixMicro(e.Place.Fence).UTC().Format(time.RFC3339), Messages: len(e.Messages), Bytes: size(e)}
	if e.Err != nil {
		x.Broken = e.Err.Error()
	}
	if withText {
		for _, message := range e.Messages {
			x.Texts = append(x.Texts, string(message))
		}
	}
	return x
}

func (t *tool) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Show, check, copy and delete the sessions of a store",
		Long: "Show, check, copy and delete the sessions of a store, in Redis or PostgreSQL.\n" +
			"The parameter namespace of --store is that of the sessions.\n" +
			"Without --store, the sessions are on the server of --url, in the namespace\n" +
			"\"session\", or \"chat:session\" beside locks in \"chat\".\n" +
			"Texts of messages are personal data: only --text shows them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(t.sessionListCommand(), t.sessionShowCommand(), t.verifyCommand(), t.sessionForkCommand(),
		t.sessionInboxCommand(), t.sessionDeleteCommand())
	return cmd
}

// withStore opens the sessions for a command.
func (t *tool) withStore(run func(ctx context.Context, s *sessions, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := t.openStore()
		if err != nil {
			return err
		}
		defer s.close()
		return run(cmd.Context(), s, args)
	}
}

func (t *tool) sessionListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions that have an exchange",
		Args:  wants(),
		RunE: t.withStore(func(ctx context.Context, s *sessions, _ []string) error {
			names, more, err := s.names(ctx, limit)
			if err != nil {
				return err
			}
			if more {
				t.say("there are more sessions than these %d: raise --limit to read all", len(names))
			}
			return t.print(map[string]any{"sessions": orEmpty(names), "more": more}, func() string {
				if len(names) == 0 {
					return fmt.Sprintf("No session in the namespace %q has an exchange.", s.Retention().Namespace)
				}
				var rows [][]string
				for _, name := range names {
					rows = append(rows, []string{name})
				}
				return tabulate([]column{{name: "SESSION"}}, rows)
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 10_000, "the most sessions to read")
	return cmd
}

// last reads the last exchanges of a session, in order.
func (s *sessions) last(ctx context.Context, name string, n int) (entries []storedriver.Entry, err error) {
	for e, err := range s.exchanges(ctx, name, lockedmemory.Place{}, true, n) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	slices.Reverse(entries)
	return entries, nil
}

func (t *tool) sessionShowCommand() *cobra.Command {
	var limit int
	var text bool
	cmd := &cobra.Command{
		Use:   "show SESSION",
		Short: "Show the last exchanges of a session",
		Long: "Show the last exchanges of a session, in order: the place with the token,\n" +
			"the moment of the grant, and the ID.\n" +
			"The exit code is 1 if the session has no exchange.",
		Args: wants("SESSION"),
		RunE: t.withStore(func(ctx context.Context, s *sessions, args []string) error {
			entries, err := s.last(ctx, args[0], limit)
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				return t.finding(noExchange)
			}
			exchanges := []exchange{}
			for _, e := range entries {
				exchanges = append(exchanges, exchangeOf(e, text))
			}
			return t.print(map[string]any{"session": args[0], "exchanges": exchanges}, func() string {
				return exchangeTable(exchanges)
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "the most exchanges to read")
	cmd.Flags().BoolVar(&text, "text", false, "show the messages, too")
	return cmd
}

func exchangeTable(exchanges []exchange) string {
	var rows [][]string
	for _, x := range exchanges {
		rows = append(rows, []string{x.Place, x.Granted, cmp.Or(x.ID, "-"), strconv.Itoa(x.Messages), strconv.Itoa(x.Bytes)})
	}
	lines := strings.Split(tabulate([]column{{name: "PLACE", right: true}, {name: "GRANTED"}, {name: "ID"},
		{name: "MESSAGES", right: true}, {name: "BYTES", right: true}}, rows), "\n")
	text := lines[0]
	for i, x := range exchanges {
		text += "\n" + lines[i+1]
		if x.Broken != "" {
			text += "\n  " + "broken: " + clean(x.Broken)
		}
		for _, message := range x.Texts {
			text += "\n  " + clean(message)
		}
	}
	return text
}

// memoryOf opens a session under its lock. The caller closes the locks.
func (t *tool) memoryOf(ctx context.Context, s *sessions, name string) (
	memory *lockedmemory.LockedMemory[[]byte, []byte], locks *service, err error) {
	key := lockedmemory.FixedKey(name)
	store, err := sessionstore.New(s.Driver, key, raw{}, nil)
	if err != nil {
		return nil, nil, err
	}
	if locks, err = t.open(ctx); err != nil {
		return nil, nil, err
	}
	if memory, err = lockedmemory.New(store, locks.locker, key, &lockedmemory.Options{Wait: deleteWait}); err != nil {
		locks.close()
	}
	return memory, locks, err
}

func (t *tool) sessionForkCommand() *cobra.Command {
	var upTo string
	cmd := &cobra.Command{
		Use:   "fork SESSION TO",
		Short: "Copy a session into a new one",
		Long: "Copy the history of a session into the session TO, which must have no exchange.\n" +
			"IDs are not copied.\n" +
			fmt.Sprintf("The command takes the lock of TO, and waits for it up to %s.", deleteWait),
		Args: wants("SESSION", "TO"),
		RunE: t.withStore(func(ctx context.Context, s *sessions, args []string) error {
			var place lockedmemory.Place
			if upTo != "" {
				if _, err := fmt.Sscanf(upTo, "%d-%d", &place.Fence, &place.N); err != nil {
					return invalid("--up-to is %q, but must be a place that session show prints", upTo)
				}
				place.N, place.Sub = place.N/(lockedmemory.MaxSub+1), place.N%(lockedmemory.MaxSub+1)
			}
			entries, err := s.last(ctx, args[0], 1)
			if err == nil && len(entries) == 0 {
				err = t.finding(noExchange)
			}
			if err != nil {
				return err
			}
			memory, locks, err := t.memoryOf(ctx, s, args[0])
			if err != nil {
				return err
			}
			defer locks.close()
			if err := memory.Fork(ctx, args[1], place); err != nil {
				return err
			}
			return t.print(map[string]any{"session": args[0], "to": args[1]}, func() string { return "Copied." })
		}),
	}
	cmd.Flags().StringVar(&upTo, "up-to", "", "the place of the last exchange to copy, with its whole turn; default: all")
	return cmd
}

func (t *tool) sessionDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete SESSION",
		Short: "Delete a session for good: history and IDs",
		Long: "Delete a session for good: its history and its IDs.\n" +
			fmt.Sprintf("The command takes the lock of the same name, and waits for it up to %s.\n", deleteWait) +
			"Turns that began to wait before the delete fail.\n" +
			"Append-only files and backups of the server are out of reach.",
		Args: wants("SESSION"),
		RunE: t.withStore(func(ctx context.Context, s *sessions, args []string) error {
			memory, locks, err := t.memoryOf(ctx, s, args[0])
			if err != nil {
				return err
			}
			defer locks.close()
			if entries, err := s.last(ctx, args[0], 1); err != nil {
				return err
			} else if len(entries) == 0 {
				t.say(noExchange)
			}
			if !yes && !t.confirm(ctx, fmt.Sprintf("Delete the session %s for good, under its lock in the namespace %q?",
				clean(args[0]), locks.namespace)) {
				return t.finding("not confirmed; nothing was changed: answer yes, or use --yes")
			}
			if err := memory.Delete(ctx); err != nil {
				return err
			}
			return t.print(map[string]any{"session": args[0], "deleted": true}, func() string {
				return "Deleted. The store keeps the place of the Delete for 24 h, to reject late writes."
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
