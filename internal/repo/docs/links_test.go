package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestDocs_relativeLinksResolve(t *testing.T) {
	all := AllPages(t)
	anchors := map[string]map[string]bool{} // of the pages that a link with an anchor leads to
	for _, p := range all {
		for i, line := range p.lines {
			if p.inBlock(i + 1) {
				continue
			}
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				target, anchor, _ := strings.Cut(found[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				name := p.name
				if target != "" {
					name = path.Join(path.Dir(p.name), target)
				}
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
					t.Errorf("%s:%d: %s: there is no %s", p.name, i+1, found[1], name)
				}
				if anchor != "" && anchors[name] == nil {
					anchors[name] = readPage(t, name).anchors()
				}
				if anchor != "" && !anchors[name][anchor] {
					t.Errorf("%s:%d: %s: %s has no such heading", p.name, i+1, found[1], name)
				}
			}
		}
	}
}

// anchors are the names that GitHub gives to headings.
func (p Page) anchors() map[string]bool {
	names := map[string]bool{}
	for i, line := range p.lines {
		hashes, title, ok := strings.Cut(line, " ")
		if !ok || hashes == "" || strings.Trim(hashes, "#") != "" || p.inBlock(i+1) {
			continue
		}
		names[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, title)] = true
	}
	return names
}
