package docs

import (
	"regexp"
	"strings"
	"testing"
)

// Pages stay short. The words are those of sentences and tables, without code and pictures.
func TestPages_fewWords(t *testing.T) {
	code, word := regexp.MustCompile("(?s)```.*?```|<!--.*?-->|!\\[[^]]*]\\S*"), regexp.MustCompile(`\S*[\pL\d]\S*`)
	for pages, most := range map[string]int{
		"README.md": 700,
		"README.md docs/quickstart.md docs/concepts.md docs/when-to-use.md": 3000, // a newcomer's path
		"docs/howto/tracing-and-metrics.md":                                 1275,
		"docs/performance.md":                                               500,
		"docs/reliability.md":                                               650,
	} {
		words := 0
		for name := range strings.FieldsSeq(pages) {
			text := code.ReplaceAllString(strings.Join(readPage(t, name).lines, "\n"), "")
			words += len(word.FindAllString(text, -1))
		}
		if words > most {
			t.Errorf("%s: %d words, at most %d: cut what a reader does not need, or move it", pages, words, most)
		}
	}
}
