package docs

import (
	"regexp"
	"strings"
	"testing"
)

// The table of errors has every sentinel and every error type of the packages for users.
func TestErrors_everySentinelHasARow(t *testing.T) {
	t.Parallel()
	isError, isTest := regexp.MustCompile("^Err[A-Z]|^[A-Z].*Errors?$"), regexp.MustCompile("^(Example|Test)")
	text := ""
	for _, row := range Errors.Table(t) {
		text += row[0] + "\n"
	}
	for _, pkg := range strings.Fields("adksession distlock election lockedmemory lockurl memlock memstore pglock pgstore redislock redisstore " +
		"redlock sessionstore tracing") {
		for name := range namesOf(t).members[pkg] {
			if isError.MatchString(name) && !isTest.MatchString(name) && !regexp.MustCompile(`\b`+pkg+`\.`+name+`\b`).MatchString(text) {
				t.Errorf("%s.%s is not in the table of %s", pkg, name, Errors.Page)
			}
		}
	}
}

// elsewhere are texts of Go.
const elsewhere = "connection refused, context deadline exceeded"

// Every part of an error text or log line of the pages is one that the code has. Parts end at points of
// punctuation, and at values.
func TestErrors_textsOfTheLibrary(t *testing.T) {
	t.Parallel()
	shown := map[Place][]string{}
	for _, place := range []Place{LogLines, {Errors.Page, "### The lock"}, {Errors.Page, "### The session store"},
		{Errors.Page, "### PostgreSQL"}, {Errors.Page, "### Quorum"}} {
		for _, row := range place.Table(t) {
			shown[place] = append(shown[place], row[0])
		}
	}
	known := namesOf(t).texts.String() + elsewhere
	part := regexp.MustCompile("…|[:;,] |[()`]|\"[^\"]*\"| *\\S*\\d\\S*|\n")
	for place, texts := range shown {
		for _, text := range part.Split(strings.Join(texts, "\n"), -1) {
			if text = strings.TrimSpace(text); !strings.Contains(known, text) {
				t.Errorf("%s: no code has the text %q", place, text)
			}
		}
	}
}
