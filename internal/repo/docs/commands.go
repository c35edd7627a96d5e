package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Command is a command on a page, as words without the quotes of the shell.
type Command struct {
	Page  string
	Line  int
	Words []string
	runBy string // the comment before its block
}

// Commands returns the commands of all pages for users that begin with these words, in blocks and in
// backquotes.
func Commands(t testing.TB, first ...string) (found []Command) {
	t.Helper()
	for _, p := range Pages(t) {
		for _, c := range p.commands() {
			if len(c.Words) >= len(first) && slices.Equal(c.Words[:len(first)], first) {
				found = append(found, c)
			}
		}
	}
	return found
}

// command begins the commands in backquotes.
var command = regexp.MustCompile(`^(make|go (run|test)|redis-cli|lockctl) `)

func (p Page) commands() (all []Command) {
	for _, b := range p.blocks {
		if b.lang == "bash" || b.lang == "sh" {
			for _, words := range shellWords(b.text) {
				all = append(all, Command{p.name, b.line, words, b.comments["run by"]})
			}
		}
	}
	for line, text := range p.inlineCode {
		if command.MatchString(text) {
			for _, words := range shellWords(text) {
				all = append(all, Command{p.name, line, words, ""})
			}
		}
	}
	return all
}

// A token of the shell is a word, the end of a command, or a comment.
var shellToken = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'";&|#])(?:'[^']*'|"[^"]*"|[^\s'";&|])*|[;&|\n]|#[^\n]*`)

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// shellWords splits a text into commands, and commands into words. Assignments before a command are left
// out, and so are redirections.
func shellWords(text string) (all [][]string) {
	var words []string
	for _, token := range append(shellToken.FindAllString(strings.ReplaceAll(text, "\\\n", " "), -1), "\n") {
		switch {
		case strings.Contains(";&|\n", token):
			if len(words) > 0 {
				all = append(all, words)
			}
			words = nil
		case len(words) == 0 && (token == "do" || assignment.MatchString(token)):
		case strings.HasPrefix(token, "#"), strings.HasPrefix(token, ">"), token == "/dev/null":
		default:
			words = append(words, strings.NewReplacer("'", "", `"`, "").Replace(token))
		}
	}
	return all
}
