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

// place is one that a mutant changes. Lines are without the space around them.
type place struct {
	old []string // what is there
	new []string // what comes in its place
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
func parse(from, text string) (mutants []*mutant, err error) {
	pkg := path.Dir(path.Dir(path.Dir(from)))
	var m *mutant
	for i, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("%s:%d", from, i+1)
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
			continue
		case key == "mutant":
			m = &mutant{name: value, from: where}
			mutants = append(mutants, m)
			continue
		case m == nil:
			return nil, fmt.Errorf("%s: a mutant begins with its name: mutant: release/owner", where)
		}
		switch first := line[0]; {
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
		case line == "...":
			m.places = append(m.places, place{})
		case first == ' ' || first == '-' || first == '+':
			if m.places == nil {
				m.places = make([]place, 1)
			}
			at, code := &m.places[len(m.places)-1], strings.TrimSpace(line[1:])
			if first != '+' {
				at.old = append(at.old, code)
			}
			if first != '-' {
				at.new = append(at.new, code)
			}
		default:
			return nil, fmt.Errorf("%s: %q is neither a key nor a line of a change", where, line)
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
		if slices.Equal(at.old, at.new) {
			return "", fmt.Errorf("%s: %s: place %d changes nothing", m.from, m.name, i+1)
		}
		start, err := find(lines, at.old)
		if err != nil {
			return "", fmt.Errorf("%s: %s does not fit %s any more: place %d: %w", m.from, m.name, m.file, i+1, err)
		}
		lines = slices.Replace(lines, start, start+len(at.old), at.new...)
	}
	return strings.Join(lines, "\n"), nil
}

// find returns where the lines stand, if that is one place.
func find(lines, old []string) (int, error) {
	if len(old) == 0 {
		return 0, errors.New("it says no line that is there")
	}
	found := -1
	for i := range len(lines) - len(old) + 1 {
		if !slices.EqualFunc(lines[i:i+len(old)], old, func(there, line string) bool { return strings.TrimSpace(there) == line }) {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("%q stands in lines %d and %d: add context", old[0], found+1, i+1)
		}
		found = i
	}
	if found < 0 {
		return 0, fmt.Errorf("no such lines: %q", old)
	}
	return found, nil
}

// split parts the name of a test as go test does.
func (t test) split() []string { return strings.Split(t.name, "/") }
