package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/testservers"
)

// Each command on a page names what exists. A block whose commands no test of this package runs has a
// comment with the test that does: <!-- run by: TestName -->.
func TestCommands_exist(t *testing.T) {
	t.Parallel()
	n := newNames(t)
	for _, p := range AllPages(t) {
		for _, c := range p.commands() {
			if err := n.command(c.Words); err != nil {
				t.Errorf("%s:%d: %s: %v", c.Page, c.Line, strings.Join(c.Words, " "), err)
			}
			if !c.block || c.runBy == "" && (c.Words[0] == "redis-cli" || c.Words[0] == "lockctl") {
				continue // see TestCommands_redisTakesThem, and the tests of cmd/lockctl
			}
			switch {
			case c.runBy != "":
				if !n.tests[c.runBy] {
					t.Errorf("%s:%d: there is no test %s", c.Page, c.Line, c.runBy)
				}
			case forUsers(c.Page) && !withoutComments[c.Page]:
				t.Errorf("%s:%d: no comment says which test runs %s", c.Page, c.Line, strings.Join(c.Words, " "))
			}
		}
	}
}

// withoutComments are pages without those comments: TestQuickstart_commandsPrintTheirOutput runs the
// first one.
var withoutComments = map[string]bool{"docs/quickstart.md": true}

// Redis takes each redis-cli command that no other test runs, with a session that has no data.
func TestCommands_redisTakesThem(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	for _, c := range Commands(t, "redis-cli") {
		if c.runBy != "" {
			continue
		}
		args := slices.DeleteFunc(slices.Clone(c.Words[1:]), func(word string) bool { return word == "--scan" })
		if len(args) < 1 || strings.HasPrefix(args[0], "-") {
			t.Errorf("%s:%d: the test does not understand %q", c.Page, c.Line, c.Words)
			continue
		}
		if _, err := server.Do(args...); err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Errorf("%s:%d: %q: %v", c.Page, c.Line, c.Words, err)
		}
	}
}

func TestCommands_wordsAsInAShell(t *testing.T) {
	got := simpleCommands("mkdir a && cd 'b c' # why; not\nON=x make test V=\"1 2\" \\\n  W=3 > /dev/null & wait\n")
	want := [][]string{{"mkdir", "a"}, {"cd", "b c"}, {"make", "test", "V=1 2", "W=3"}, {"wait"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// command checks the names in a command. It knows the programs that the pages use.
func (n *names) command(words []string) error {
	args := words[1:]
	switch words[0] {
	case "make":
		return makes(args)
	case "go":
		return n.goCommand(args)
	case "redis-server":
		return n.options(args, n.settings, "daemonize")
	case "redis-cli", "for", "until", "done", "cd", "mkdir", "cat", "cut", "git", "kill", "sleep", "wait", "lockctl",
		"curl", "psql", "export", "kubectl", "./chat", "printf", "sha256sum":
		return nil
	}
	return fmt.Errorf("the test does not know %s", words[0])
}

// makes checks targets and variables of the Makefile.
func makes(args []string) error {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	for _, arg := range args {
		if variable, _, ok := strings.Cut(arg, "="); ok {
			if !strings.Contains(string(text), "$("+variable+")") && !strings.Contains(string(text), "$("+variable+",") && !strings.Contains(string(text), "\n"+variable+" :=") {
				return fmt.Errorf("the Makefile has no variable %s", variable)
			}
		} else if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(arg) + `:`).Match(text) {
			return fmt.Errorf("the Makefile has no target %s", arg)
		}
	}
	return nil
}

// goCommand checks that packages exist, and that they have the tests that -run and -bench choose.
func (n *names) goCommand(args []string) error {
	if len(args) == 0 || args[0] != "run" && args[0] != "test" {
		return nil
	}
	dirs, chosen := []string{}, map[string]string{}
	for i, arg := range args {
		if i > 0 && (args[i-1] == "-run" || args[i-1] == "-bench") && arg != "^$" {
			chosen[args[i-1]], _, _ = strings.Cut(arg, "/")
		}
		if arg != "." && !strings.HasPrefix(arg, "./") {
			continue
		}
		dir := filepath.Clean(strings.TrimSuffix(arg, "/..."))
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
			return fmt.Errorf("there is no package %s", arg)
		}
		dirs = append(dirs, dir)
		if args[0] == "run" {
			return nil // the rest are arguments of the program
		}
	}
	for option, pattern := range chosen {
		if len(dirs) == 0 {
			break // a pattern for any package
		}
		name, err := regexp.Compile(pattern)
		if err != nil {
			return err
		}
		prefix := map[string]string{"-run": "Test", "-bench": "Benchmark"}[option]
		if !slices.ContainsFunc(n.testFuncs, func(f testFunc) bool {
			return strings.HasPrefix(f.name, prefix) && name.MatchString(f.name) &&
				slices.ContainsFunc(dirs, func(dir string) bool { return f.dir == dir || strings.HasPrefix(f.dir, dir+"/") })
		}) {
			return fmt.Errorf("%q has no %s that matches %s", dirs, prefix, pattern)
		}
	}
	return nil
}

// options checks arguments that begin with two hyphens.
func (n *names) options(args []string, known map[string]bool, more ...string) error {
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--"); ok && !known[name] && !slices.Contains(more, name) {
			return fmt.Errorf("there is no setting %s", name)
		}
	}
	return nil
}
