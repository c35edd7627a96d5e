package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestDocs_relativeLinksResolve(t *testing.T) {
	t.Parallel()
	for _, p := range allPages(t) {
		for line, text := range p.text {
			for _, found := range link.FindAllStringSubmatch(text, -1) {
				target, anchor, _ := strings.Cut(found[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				name := p.name
				if target != "" {
					name = path.Join(path.Dir(p.name), target)
				}
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
					t.Errorf("%s:%d: %s: there is no %s", p.name, line, found[1], name)
				} else if anchor != "" && !readPage(t, name).hasAnchor(anchor) {
					t.Errorf("%s:%d: %s: %s has no such heading", p.name, line, found[1], name)
				}
			}
		}
	}
}

var punctuation = regexp.MustCompile(`^#+ |[^\pL\pN_ -]`)

// hasAnchor compares a name with those that GitHub gives to the headings of the page.
func (p Page) hasAnchor(anchor string) bool {
	for _, text := range p.headings {
		title := strings.ToLower(punctuation.ReplaceAllString(text, ""))
		if strings.ReplaceAll(title, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// Pages stay short. The words are those of sentences and tables, without code and pictures. A name with a
// slash at its end stands for all pages below.
func TestPages_fewWords(t *testing.T) {
	t.Parallel()
	leftOut, word := regexp.MustCompile(`<!--.*?-->|!\[[^]]*]\S*`), regexp.MustCompile(`\S*[\pL\d]\S*`)
	words := map[string]int{}
	for _, p := range allPages(t) {
		for _, text := range p.text {
			words[p.name] += len(word.FindAllString(leftOut.ReplaceAllString(text, ""), -1))
		}
	}
	for pages, most := range map[string]int{
		"README.md": 600,
		"README.md docs/quickstart.md docs/concepts.md docs/when-to-use.md": 3000, // a newcomer's path
		"docs/howto/tracing-and-metrics.md":                                 1000,
		"docs/performance.md":                                               500,
		"docs/reliability.md":                                               650,
		"docs/howto/ docs/operations/ docs/reference/":                      17200,
		"docs/design/":                                                      12000,
	} {
		sum := 0
		for _, name := range strings.Fields(pages) {
			for page, count := range words {
				if page == name || strings.HasSuffix(name, "/") && strings.HasPrefix(page, name) {
					sum += count
				}
			}
		}
		if sum > most {
			t.Errorf("%s: %d words, at most %d: cut what a reader does not need, or move it", pages, sum, most)
		}
	}
}
