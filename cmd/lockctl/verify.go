package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// maxProblems is how many findings verify reports.
const maxProblems = 100

// ahead is how far a token may be ahead of this machine's clock.
const ahead = 24 * time.Hour

// verdict is what verify found in a session.
type verdict struct {
	Session   string    `json:"session"`
	Exchanges int       `json:"exchanges"`
	Tokens    int       `json:"tokens"` // leases that have stored something
	IDs       int       `json:"ids"`
	Bytes     int       `json:"bytes"`
	More      bool      `json:"more"`
	Problems  []problem `json:"problems"`

	last  lockedmemory.Place
	known map[string]bool // IDs
}

type problem struct {
	Place string `json:"place"`
	Text  string `json:"problem"`
}

func (t *tool) verifyCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "verify SESSION",
		Short: "Check the exchanges of a session",
		Long: "Check a session from its beginning: entries that cannot be read, places out of\n" +
			"order, exchanges stored twice under one ID, and tokens ahead of the clock.\n" +
			"If a lock of the same name is held, verify compares its token with the newest\n" +
			"one of the session.\n" +
			"The exit code is 1 with a finding, and if the session has no exchange.",
		Args: wants("SESSION"),
		RunE: t.withStore(func(ctx context.Context, s *sessions, args []string) error {
			v := &verdict{Session: args[0], Problems: []problem{}, known: map[string]bool{}}
			for e, err := range s.exchanges(ctx, args[0], lockedmemory.Place{}, false, math.MaxInt) {
				if err != nil {
					return err
				}
				if v.More = v.Exchanges == limit; v.More {
					break
				}
				v.check(e, time.Now())
			}
			if v.Exchanges == 0 {
				return t.finding(noExchange)
			}
			if t.lockURL() != "" {
				if err := t.compare(ctx, v); err != nil {
					return err
				}
			}
			if err := t.print(v, func() string { return describe(v) }); err != nil {
				return err
			}
			if len(v.Problems) > 0 {
				return errFinding
			}
			return nil
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 100_000, "the most exchanges to read")
	return cmd
}

// check looks at the next entry.
func (v *verdict) check(e storedriver.Entry, now time.Time) {
	found := func(format string, args ...any) {
		if len(v.Problems) < maxProblems {
			v.Problems = append(v.Problems, problem{e.Place.String(), fmt.Sprintf(format, args...)})
		}
	}
	v.Exchanges++
	v.Bytes += size(e)
	if e.Place.Fence != v.last.Fence {
		v.Tokens++
	}
	if e.Place.Compare(v.last) <= 0 {
		found("the place is not above the one before, %s", v.last)
	}
	if at := time.UnixMicro(e.Place.Fence); at.After(now.Add(ahead)) {
		found("the token is ahead of this machine's clock: it stands for %s", at.UTC().Format(time.RFC3339))
	}
	if v.last = e.Place; e.Err != nil {
		found("the entry cannot be read: %v", e.Err)
		return
	}
	if len(e.Messages) == 0 {
		found("the exchange has no message")
	}
	if e.ID != "" {
		if v.known[e.ID] {
			found("an exchange before it has its ID: it is stored twice")
		}
		v.known[e.ID] = true
		v.IDs = len(v.known)
	}
}

// compare looks at the lock after the session was read, so that a later holder has a higher token.
func (t *tool) compare(ctx context.Context, v *verdict) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := s.lock(ctx, v.Session)
	if err != nil {
		return err
	}
	if l.Held && v.last.Fence > l.Token+driver.FenceBlock {
		v.Problems = append(v.Problems, problem{v.last.String(), fmt.Sprintf(
			"the lock is held under the lower token %d: the store rejects this holder's writes until its token is raised", l.Token)})
	}
	return nil
}

func describe(v *verdict) string {
	text := pairs([2]string{"exchanges", strconv.Itoa(v.Exchanges)}, [2]string{"tokens", strconv.Itoa(v.Tokens)},
		[2]string{"IDs", strconv.Itoa(v.IDs)}, [2]string{"bytes", strconv.Itoa(v.Bytes)})
	if v.More {
		text += "\nThe session has more exchanges: raise --limit to check them."
	}
	for _, p := range v.Problems {
		text += "\n" + p.Place + "  " + clean(p.Text)
	}
	if len(v.Problems) == 0 {
		return text + "\nNo problem was found."
	}
	return text + fmt.Sprintf("\nProblems: %d", len(v.Problems))
}
