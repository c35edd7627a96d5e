package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// choice says which mutants to run, and in which order.
type choice struct {
	only    *regexp.Regexp
	since   string // a revision of git, or "recent"
	minutes float64
}

// choose prints what it chooses. Nothing is chosen if nothing has changed.
func (c choice) choose(root string) ([]*mutant, error) {
	chosen, err := load(root)
	if err != nil {
		return nil, err
	}
	chosen = slices.DeleteFunc(chosen, func(m *mutant) bool { return !c.only.MatchString(m.name + "\n" + m.guard + "\n" + m.file) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant matches %s", c.only)
	}
	of := ""
	if revision := resolve(root, c.since); revision != "" {
		changed, err := changedSince(root, revision)
		if err != nil {
			return nil, err
		}
		chosen = slices.DeleteFunc(chosen, func(m *mutant) bool { return !m.concerns(changed) })
		of = " of what has changed since " + revision
	}
	if c.minutes > 0 {
		rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		of += fmt.Sprintf(", in random order, for %v minutes", c.minutes)
	}
	fmt.Printf("%d mutants%s\n", len(chosen), of)
	return chosen, nil
}

// concerns says whether one of the files is the mutant's, that of its quotes, or a test of a package that
// has to notice.
func (m *mutant) concerns(files []string) bool {
	quotes, _, _ := strings.Cut(m.from, ":")
	return slices.ContainsFunc(files, func(file string) bool {
		return file == m.file || file == quotes || strings.HasSuffix(file, "_test.go") &&
			slices.ContainsFunc(m.caught, func(t test) bool { return t.pkg == path.Dir(file) })
	})
}

// resolve returns the revision that since stands for. It is empty, and all mutants count as changed, if
// git knows no tag and no commit older than a day, as in a shallow clone.
func resolve(root, since string) string {
	if since != "recent" {
		return since
	}
	if tag, err := git(root, "describe", "--tags", "--abbrev=0"); err == nil {
		return tag
	}
	yesterday, _ := git(root, "rev-list", "-1", "--before=1.day.ago", "--abbrev-commit", "HEAD")
	return yesterday
}

// changedSince returns the files that differ from a revision, those that git does not know yet included.
func changedSince(root, revision string) ([]string, error) {
	tracked, err := git(root, "diff", "--name-only", "--relative", "-z", revision, "--")
	if err != nil {
		return nil, err
	}
	others, err := git(root, "ls-files", "--others", "--exclude-standard", "-z")
	return strings.Split(tracked+others, "\x00"), err
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
