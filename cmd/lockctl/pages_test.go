package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/internal/repo/docs"
)

// Each command that a page shows exists, with its flags and its number of arguments.
func TestRoot_commandsOfThePages(t *testing.T) {
	commands := docs.Commands(t, "lockctl")
	if len(commands) < 5 {
		t.Errorf("the pages show %d commands", len(commands))
	}
	for _, c := range commands {
		if err := parses((&tool{}).root(), c.Words[1:]); err != nil {
			t.Errorf("%s:%d: %q: %v", c.Page, c.Line, c.Words, err)
		}
	}
	for _, wrong := range [][]string{{"lists"}, {"list", "--longer"}, {"show"}, {"queue", "a", "b"}} {
		if parses((&tool{}).root(), wrong) == nil {
			t.Errorf("%q is found to be right", wrong)
		}
	}
}

func parses(root *cobra.Command, args []string) error {
	root.InitDefaultCompletionCmd()
	command, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}
