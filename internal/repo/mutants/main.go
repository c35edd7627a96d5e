// Command mutants takes out the guards of this module and of those below it, one at a time, and
// fails if the tests that are named for them do not notice.
//
// A mutant is a guard taken out: a few lines of Go or Lua that are replaced when the tests are
// built (go test -overlay), so nothing of it is in the code. Mutants stand beside the tests that
// have to catch them, in testdata/mutants/*.txt of a package:
//
//	mutant: release/owner
//	guard:  S1, only the owner releases
//	file:   redislock/release.lua
//	caught: TestConformance_redis/S1_onlyTheOwnerReleases
//	 local held = redis.call('GET', KEYS[1])
//	-if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
//	+if held then
//
// "guard" begins with a promise of docs/guarantees.md, or with "outcome" for what a caller is told of a
// call, or has ⚑ for a rule of docs/design. Other guards have a test, and no mutant.
//
// "file" is relative to the package; "caught" is a test of the package, or of another one that
// stands before it, as in "caught: internal/test/matrix TestFaults/node/holderKilled". There may be
// several of both. Optional are "with", flags of go test such as -race, and "hangs: counts", for a
// guard whose absence shows by a test that does not end.
//
// The tests of a module below this one are built in the workspace that uses it, others without one.
//
// What follows is a change as diff -u has them, without line numbers: lines with a space before
// them are context, those with a minus go, those with a plus come. The lines that are there have to
// be found once in the file, whatever their indentation; "..." between them parts one place from
// another.
//
// A line that is there may be quoted in part: a … at its start or end stands for the rest. A rename in
// the rest does not concern the mutant. The part has to be found once, too. A … in the next plus line
// keeps the rest. A plus line of … alone removes the part:
//
//	-… && !le.suspectLocked(at)…
//	+…
//
// The tests of this package see to it that all mutants compile and fit. make mutants runs them:
//
//	go run ./internal/repo/mutants [-only regexp] [-since revision] [-minutes n]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	var c choice
	only := flag.String("only", "", "run the mutants whose name, file or guard matches this regular expression")
	flag.StringVar(&c.since, "since", "", "run the mutants whose file, quotes or tests differ from this `revision` of git; recent is the last tag, "+
		"or without a tag the last commit older than a day")
	flag.Float64Var(&c.minutes, "minutes", 0, "start mutants in random order for that long; 0 runs all of them")
	root := flag.String("root", ".", "where the module is")
	flag.Parse()
	var err error
	if c.only, err = regexp.Compile("(?i)" + *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runAll(ctx, *root, c); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func runAll(ctx context.Context, root string, c choice) error {
	start := time.Now()
	chosen, err := c.choose(root)
	if err != nil || len(chosen) == 0 {
		return err
	}
	g := &gate{root: root, passed: make(map[run]bool)}
	if g.scratch, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(g.scratch) }()
	if c.minutes == 0 {
		if err := g.passesUnbroken(ctx, chosen...); err != nil {
			return err
		}
		fmt.Printf("without mutants, the tests pass (%s)\n\n", round(time.Since(start)))
	}
	ran, count := 0, make(map[verdict]int)
	for _, m := range chosen {
		began := time.Now()
		if c.minutes > 0 {
			if began.Sub(start).Minutes() >= c.minutes {
				break
			}
			if err := g.passesUnbroken(ctx, m); err != nil {
				return err
			}
		}
		v, by, detail, err := g.try(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		ran++
		count[v]++
		fmt.Printf("%-8s  %s  %s  (%s)\n          → %s\n", v, m.name, m.guard, round(time.Since(began)), by)
		if detail != "" {
			fmt.Println(detail)
		}
	}
	fmt.Printf("\n%d of %d mutants ran: %d killed, %d survived, %d invalid, in %s\n",
		ran, len(chosen), count[killed], count[survived], count[invalid], round(time.Since(start)))
	if count[killed] < ran {
		return fmt.Errorf("%d of %d guards are not proven to be tested", ran-count[killed], ran)
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
