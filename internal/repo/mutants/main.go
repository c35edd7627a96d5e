// Command mutants takes out the guards of this module and of those below it, one at a time, and fails if the tests that are
// named for them do not notice. A guard whose absence no test notices is not tested.
//
// A mutant is a guard taken out: a few lines of Go or Lua that are replaced when the tests are built (go test -overlay), so
// nothing of it is in the code. Mutants stand beside the tests that have to catch them, in testdata/mutants/*.txt of a package:
//
//	mutant: release/owner
//	guard:  S1, only the owner releases
//	file:   redislock/release.lua
//	caught: TestConformance_redis/S1_onlyTheOwnerReleases
//	 local held = redis.call('GET', KEYS[1])
//	-if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
//	+if held then
//
// "file" is relative to the package; "caught" is a test of the package, or of another one that stands before it,
// as in "caught: internal/faultmatrix TestFaults/node/holderKilled". There may be several of both. Optional are "with", flags of
// go test such as -race, and "hangs: counts", for a guard whose absence shows by a test that does not end.
//
// The tests of a module below this one are built in the workspace contract.work, those of this one without a workspace.
//
// What follows is a change as diff -u has them, without line numbers: lines with a space before them are context, those with a
// minus go, those with a plus come. The lines that are there have to be found once in the file, whatever their indentation;
// "..." between them parts one place from another.
//
// A … at the start or the end of a line that is there stands for the rest of that line, so a rename elsewhere in the line does
// not concern the mutant. The part has to be found once, too. A … in the plus line that follows keeps the rest, and a plus line
// of … alone keeps all but the part:
//
//	-… && !le.suspectLocked(at)…
//	+…
//
// The tests of this package see to it that all mutants still fit the code and the tests. make mutants runs them:
//
//	go run ./internal/repo/mutants [-only regexp]
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
	only := flag.String("only", "", "run the mutants whose name, file or guard matches this regular expression")
	root := flag.String("root", ".", "where the module is")
	flag.Parse()
	pattern, err := regexp.Compile("(?i)" + *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runAll(ctx, *root, pattern); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func runAll(ctx context.Context, root string, only *regexp.Regexp) error {
	mutants, err := load(root)
	if err != nil {
		return err
	}
	chosen := mutants[:0]
	for _, m := range mutants {
		if only.MatchString(m.name + "\n" + m.guard + "\n" + m.file) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches %s", only)
	}
	start := time.Now()
	g := &gate{root: root}
	if g.scratch, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(g.scratch) }()
	if err := g.passesUnbroken(ctx, chosen); err != nil {
		return err
	}
	fmt.Printf("%d mutants; without them, their tests pass (%s)\n\n", len(chosen), round(time.Since(start)))
	count := make(map[verdict]int)
	for _, m := range chosen {
		began := time.Now()
		v, by, detail, err := g.try(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		count[v]++
		fmt.Printf("%-8s  %s  %s  (%s)\n          → %s\n", v, m.name, m.guard, round(time.Since(began)), by)
		if detail != "" {
			fmt.Println(detail)
		}
	}
	fmt.Printf("\n%d killed, %d survived, %d invalid, in %s\n", count[killed], count[survived], count[invalid], round(time.Since(start)))
	if count[killed] < len(chosen) {
		return fmt.Errorf("%d of %d guards are not proven to be tested", len(chosen)-count[killed], len(chosen))
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
