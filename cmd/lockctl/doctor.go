package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/cmd/lockctl/internal/doctor"
)

func (t *tool) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Examine the servers, and say what endangers the locks",
		Long: "Examine the servers of --url, and those of --store or LOCKCTL_STORE if given.\n" +
			"doctor reads settings and state. It changes no setting, no key and no row.\n" +
			"The exit code is 1 if there is a problem. A warning is no problem.",
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			locks, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer locks.close()
			services := doctor.Services{LockURL: t.lockURL(), Locker: locks.locker}
			if services.StoreURL = t.storeURL(); services.StoreURL != "" {
				store, err := t.openStore()
				if err != nil {
					return err
				}
				defer store.close()
				services.Sessions = store.Driver
			}
			findings := doctor.Examine(cmd.Context(), services)
			if err := t.print(map[string]any{"findings": findings}, func() string { return diagnosis(findings) }); err != nil {
				return err
			}
			if slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Level == doctor.Problem }) {
				return errFinding
			}
			return nil
		},
	}
}

// diagnosis writes findings below the server that each is about.
func diagnosis(findings []doctor.Finding) string {
	var b strings.Builder
	count, server := map[doctor.Level]int{}, "-"
	for _, f := range findings {
		count[f.Level]++
		if f.Server != server {
			server = f.Server
			title := server
			if server == "" {
				title = "all servers"
			}
			fmt.Fprintf(&b, "%s\n", title)
		}
		fmt.Fprintf(&b, "  %-8s %-14s %s\n", f.Level, f.Check, clean(packages.ReplaceAllString(f.Found, "")))
		if f.Level != doctor.OK {
			fmt.Fprintf(&b, "%26s%s\n%26s→ %s\n", "", clean(f.Means), "", clean(f.Do))
		}
	}
	for _, level := range []doctor.Level{doctor.Problem, doctor.Warning, doctor.Note} {
		plural := "s"
		if count[level] == 1 {
			plural = ""
		}
		fmt.Fprintf(&b, "%d %s%s, ", count[level], level, plural)
	}
	fmt.Fprintf(&b, "%d ok", count[doctor.OK])
	return b.String()
}
