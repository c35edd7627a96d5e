package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a guard taken out.
type mutant struct {
	name   string
	guard  string // what is taken out, after the promise or rule that it serves
	file   string // where, relative to the module
	caught []test // the tests that have to notice, all of them
	with   []string
	hangs  bool // a test that does not end has noticed, too
	places []place

	from string // the file and line that say so
}

// test is one of a package, which is relative to the module.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// place is one that a mutant changes.
type place struct{ lines []line }

// line is one of a change, without the space around it. Its sign is ' ' for context, '-' or '+'.
type line struct {
	sign byte
	text string
}

// load reads all mutants of a module.
func load(root string) ([]*mutant, error) {
	var all []*mutant
	seen := make(map[string]*mutant)
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".txt" ||
			!strings.HasSuffix(filepath.Dir(name), filepath.Join("testdata", "mutants")) {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		from, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		mutants, err := parse(filepath.ToSlash(from), string(text))
		for _, m := range mutants {
			if twin := seen[m.name]; twin != nil {
				return fmt.Errorf("%s: there is a mutant %s already: %s", m.from, m.name, twin.from)
			}
			seen[m.name] = m
		}
		all = append(all, mutants...)
		return err
	})
	return all, err
}

// parse reads a file of mutants, which is in testdata/mutants of their package.
func parse(from, file string) (mutants []*mutant, err error) {
	pkg := path.Dir(path.Dir(path.Dir(from)))
	var m *mutant
	for i, text := range strings.Split(file, "\n") {
		where := fmt.Sprintf("%s:%d", from, i+1)
		key, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.TrimSpace(text) == "" || text[0] == '#':
			continue
		case key == "mutant":
			m = &mutant{name: value, from: where}
			mutants = append(mutants, m)
			continue
		case m == nil:
			return nil, fmt.Errorf("%s: a mutant begins with its name: mutant: release/owner", where)
		}
		switch first := text[0]; {
		case key == "guard":
			m.guard = value
		case key == "file":
			m.file = path.Join(pkg, value)
		case key == "caught":
			in, name, other := strings.Cut(value, " ")
			if !other {
				in, name = pkg, value
			}
			m.caught = append(m.caught, test{in, name})
		case key == "with":
			m.with = strings.Fields(value)
		case key == "hangs" && value == "counts":
			m.hangs = true
		case text == "...":
			m.places = append(m.places, place{})
		case first == ' ' || first == '-' || first == '+':
			if m.places == nil {
				m.places = make([]place, 1)
			}
			at := &m.places[len(m.places)-1]
			at.lines = append(at.lines, line{first, strings.TrimSpace(text[1:])})
		default:
			return nil, fmt.Errorf("%s: %q is neither a key nor a line of a change", where, text)
		}
	}
	for _, m := range mutants {
		if m.guard == "" || m.file == "" || m.caught == nil || m.places == nil {
			return nil, fmt.Errorf("%s: %s has to say its guard, its file, the tests that catch it, and the change", m.from, m.name)
		}
	}
	return mutants, nil
}

// apply returns the text of the mutant's file with the guard taken out.
func (m *mutant) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for i, at := range m.places {
		start, end, changed, err := at.find(lines)
		if err != nil {
			return "", fmt.Errorf("%s: %s does not fit %s any more: place %d: %w", m.from, m.name, m.file, i+1, err)
		}
		if slices.EqualFunc(lines[start:end], changed, func(old, now string) bool { return strings.TrimSpace(old) == now }) {
			return "", fmt.Errorf("%s: %s: place %d changes nothing", m.from, m.name, i+1)
		}
		lines = slices.Replace(lines, start, end, changed...)
	}
	return strings.Join(lines, "\n"), nil
}

// find returns where the place is, if it is found once, and what comes there.
func (at place) find(lines []string) (start, end int, changed []string, err error) {
	quoted := slices.DeleteFunc(slices.Clone(at.lines), func(l line) bool { return l.sign == '+' })
	if len(quoted) == 0 {
		return 0, 0, nil, errors.New("it says no line that is there")
	}
	for i := range len(lines) - len(quoted) + 1 {
		found, times := at.change(lines[i:])
		if times == 0 {
			continue
		}
		if times > 1 || changed != nil {
			return 0, 0, nil, fmt.Errorf("%q is in line %d, and not only once: add context", quoted[0].text, i+1)
		}
		start, end, changed = i, i+len(quoted), found
	}
	if changed == nil {
		return 0, 0, nil, fmt.Errorf("no such lines: %q", quoted[0].text)
	}
	return start, end, changed, nil
}

// change returns what the place makes of the first lines of these, and in how many ways it fits them.
func (at place) change(lines []string) (changed []string, times int) {
	changed, times = []string{}, 1
	var head, tail string
	for _, l := range at.lines {
		if l.sign == '+' {
			changed = append(changed, fill(l.text, head, tail))
			continue
		}
		var ways int
		head, tail, ways = match(lines[0], l.text)
		if times *= ways; times == 0 {
			return nil, 0
		}
		if l.sign == ' ' {
			changed = append(changed, strings.TrimSpace(lines[0]))
		}
		lines = lines[1:]
	}
	return changed, times
}

// match returns what the … of a quote stand for in a line, and how often the line has the quote.
func match(there, quote string) (head, tail string, times int) {
	there = strings.TrimSpace(there)
	part, fromStart := strings.CutPrefix(quote, "…")
	part, toEnd := strings.CutSuffix(part, "…")
	for i := range len(there) - len(part) + 1 {
		if there[i:i+len(part)] == part && (fromStart || i == 0) && (toEnd || i+len(part) == len(there)) {
			head, tail = there[:i], there[i+len(part):]
			times++
		}
	}
	return head, tail, times
}

// fill puts back into a new line what the … of the line before stood for.
func fill(text, head, tail string) string {
	if text == "…" {
		return head + tail
	}
	if part, ok := strings.CutPrefix(text, "…"); ok {
		text = head + part
	}
	if part, ok := strings.CutSuffix(text, "…"); ok {
		text = part + tail
	}
	return text
}

// split parts the name of a test as go test does.
func (t test) split() []string { return strings.Split(t.name, "/") }
