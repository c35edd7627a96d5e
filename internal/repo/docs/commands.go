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
	block bool   // it stands in a block, not in a sentence
}

// The comment <!-- run by: TestName --> before a block of commands names the test that runs them.
var runByComment = regexp.MustCompile(`^<!-- run by: (.*) -->$`)

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

func (p Page) commands() (all []Command) {
	add := func(line int, text, runBy string, block bool) {
		for _, words := range simpleCommands(text) {
			all = append(all, Command{p.name, line, words, runBy, block})
		}
	}
	for _, b := range p.blocks {
		if b.lang == "bash" || b.lang == "sh" {
			add(b.line, b.text, b.runBy, true)
		}
	}
	for i, line := range p.lines {
		if !p.inBlock(i + 1) {
			for _, text := range inlineCode(line) {
				if programs.MatchString(text) {
					add(i+1, text, "", false)
				}
			}
		}
	}
	return all
}

// programs begins the commands that stand in backquotes.
var programs = regexp.MustCompile(`^(make|go (run|test)|redis-cli|lockctl) `)

var inline = regexp.MustCompile("``([^`]|`[^`])+``|`[^`]+`")

func inlineCode(line string) (texts []string) {
	for _, text := range inline.FindAllString(line, -1) {
		texts = append(texts, strings.TrimSpace(strings.Trim(text, "`")))
	}
	return texts
}

// simpleCommands splits a text of the shell into commands, and commands into words. Assignments before
// a command are left out, and so are redirections. Substitutions and loops are not understood.
func simpleCommands(text string) (all [][]string) {
	var words []string
	var current strings.Builder
	quote, inWord := rune(0), false
	endWord := func() {
		if inWord {
			words = append(words, current.String())
		}
		current.Reset()
		inWord = false
	}
	end := func() {
		endWord()
		for len(words) > 0 && (words[0] == "do" || assignment.MatchString(words[0])) {
			words = words[1:]
		}
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, ">") || w == "/dev/null" })
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	comment := false
	for _, r := range strings.ReplaceAll(text, "\\\n", " ") {
		switch {
		case comment:
			if comment = r != '\n'; !comment {
				end()
			}
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				current.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			comment = true
		case strings.ContainsRune("\n;&|", r):
			end()
		case r == ' ' || r == '\t':
			endWord()
		default:
			current.WriteRune(r)
			inWord = true
		}
	}
	end()
	return all
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)
